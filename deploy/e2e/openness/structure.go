package openness

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	jwtv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/jwt_authn/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	quicv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/quic/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/istiod-lite/istiod-lite/api/jwks"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// message decodes a resource.
func message(r *envoy.Resource) (proto.Message, error) {
	any := &anypb.Any{}
	if err := proto.Unmarshal(r.Bytes(), any); err != nil {
		return nil, err
	}
	return any.UnmarshalNew()
}

// eachAny calls do for each message that is packed in another one.
func eachAny(m proto.Message, do func(proto.Message) error) (err error) {
	var walk func(protoreflect.Message)
	walk = func(m protoreflect.Message) {
		if err != nil {
			return
		}
		if any, ok := m.Interface().(*anypb.Any); ok {
			if inner, bad := any.UnmarshalNew(); bad == nil {
				err = do(inner)
			}
			return
		}
		m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			switch {
			case f.IsMap() && f.MapValue().Message() != nil:
				v.Map().Range(func(_ protoreflect.MapKey, x protoreflect.Value) bool { walk(x.Message()); return err == nil })
			case f.IsList() && f.Message() != nil:
				for i := range v.List().Len() {
					walk(v.List().Get(i).Message())
				}
			case f.Message() != nil && !f.IsMap():
				walk(v.Message())
			}
			return err == nil
		})
	}
	walk(m.ProtoReflect())
	return err
}

// chains returns the filter chains of listeners by their port and what they match.
func chains(all map[string]*listenerv3.Listener) map[string]*listenerv3.FilterChain {
	out := map[string]*listenerv3.FilterChain{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		l := all[name]
		at := l.GetAddress().GetSocketAddress()
		place := fmt.Sprintf("%s:%d", at.GetAddress(), at.GetPortValue())
		if l.GetUdpListenerConfig() != nil {
			place += "/udp"
		}
		for _, c := range l.GetFilterChains() {
			m := c.GetFilterChainMatch()
			names := m.GetServerNames()
			if len(names) == 0 {
				names = []string{"*"}
			}
			for _, n := range names {
				key := fmt.Sprintf("%s port %d name %s transport %s protocols %v addresses %v sources %v",
					place, m.GetDestinationPort().GetValue(), n, m.GetTransportProtocol(), m.GetApplicationProtocols(), ranges(m.GetPrefixRanges()),
					ranges(m.GetSourcePrefixRanges()))
				if out[key] == nil {
					out[key] = c
				}
			}
		}
		if d := l.GetDefaultFilterChain(); d != nil {
			out[place+" default"] = d
		}
	}
	return out
}

// beside returns the chains that may take connections to the port of a key that no chain has: those for the port, or
// else those for all ports.
func beside(all map[string]*listenerv3.FilterChain, key string) (out []*listenerv3.FilterChain) {
	port, _, _ := strings.Cut(key, " name ")
	place, _, _ := strings.Cut(key, " port ")
	for _, prefix := range []string{port + " name ", place + " port 0 name "} {
		for k, chain := range all {
			if strings.HasPrefix(k, prefix) {
				out = append(out, chain)
			}
		}
		if len(out) > 0 {
			return out
		}
	}
	return nil
}

func ranges(list []*corev3.CidrRange) (out []string) {
	for _, r := range list {
		out = append(out, fmt.Sprintf("%s/%d", r.GetAddressPrefix(), r.GetPrefixLen().GetValue()))
	}
	return out
}

// listeners compares the chains that take the same connections.
func (c *comparison) listeners() error {
	theirs, err := decode[listenerv3.Listener](c.theirs[envoy.ListenerType])
	if err != nil {
		return err
	}
	ours, err := decode[listenerv3.Listener](c.ours[envoy.ListenerType])
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(ours)) {
		if theirs[name] == nil {
			c.report(Visible, name, "a listener")
		}
	}
	a, b := chains(theirs), chains(ours)
	for _, key := range slices.Sorted(maps.Keys(a)) {
		wanted, others := tokens(a[key]), beside(b, key)
		if b[key] != nil || len(wanted) == 0 || len(others) == 0 {
			continue
		}
		var have []*jwtv3.JwtProvider
		for _, chain := range others {
			have = append(have, tokens(chain)...)
		}
		c.tokens(key, wanted, have)
	}
	for _, key := range slices.Sorted(maps.Keys(b)) {
		mine, other := b[key], a[key]
		if other == nil {
			continue // what takes the connection instead is followed by requests
		}
		x, y := downstream(other), downstream(mine)
		switch {
		case x == nil:
		case y == nil:
			c.report(Plaintext, key, "no TLS is terminated")
		default:
			for _, w := range y.weaker(*x) {
				c.report(w.kind, key, "%s", w.text)
			}
		}
		c.filters(key, other, mine)
	}
	return nil
}

// downstream returns how a chain verifies clients; nil if it terminates no TLS.
func downstream(c *listenerv3.FilterChain) *verification {
	t, q := &tlsv3.DownstreamTlsContext{}, &quicv3.QuicDownstreamTransport{}
	switch s := c.GetTransportSocket().GetTypedConfig(); {
	case s.MessageIs(q) && s.UnmarshalTo(q) == nil:
		t = q.GetDownstreamTlsContext()
	case s.MessageIs(t) && s.UnmarshalTo(t) == nil:
	default:
		return nil
	}
	v := verified(t.GetCommonTlsContext())
	v.certificate = t.GetRequireClientCertificate().GetValue()
	return &v
}

// filter is a filter of either kind.
type filter interface {
	GetName() string
	GetTypedConfig() *anypb.Any
}

// filters compares the filters of two chains.
func (c *comparison) filters(where string, theirs, ours *listenerv3.FilterChain) {
	var a, b []filter
	for _, f := range theirs.GetFilters() {
		a = append(a, f)
	}
	for _, f := range ours.GetFilters() {
		b = append(b, f)
	}
	for _, f := range manager(theirs).GetHttpFilters() {
		a = append(a, f)
	}
	for _, f := range manager(ours).GetHttpFilters() {
		b = append(b, f)
	}
	used := make([]bool, len(b))
	for _, f := range a {
		at := slices.IndexFunc(b, func(x filter) bool { return x.GetName() == f.GetName() })
		for at >= 0 && used[at] {
			next := slices.IndexFunc(b[at+1:], func(x filter) bool { return x.GetName() == f.GetName() })
			if next < 0 {
				at = -1
				break
			}
			at += 1 + next
		}
		if at < 0 {
			if !judged(f) {
				c.report(Filter, where, "%s is missing", f.GetName())
			}
			continue
		}
		used[at] = true
		c.failures(where, f, b[at])
	}
	x, y := tokens(theirs), tokens(ours)
	c.tokens(where, x, y)
}

// judged reports whether requests show what a filter does, so that it may be missing or be one of several.
func judged(f filter) bool {
	url := f.GetTypedConfig().GetTypeUrl()
	return strings.HasSuffix(url, ".RBAC") && !strings.Contains(f.GetName(), "marker") || strings.HasSuffix(url, ".JwtAuthentication") ||
		strings.HasSuffix(url, ".TcpProxy") || strings.HasSuffix(url, ".HttpConnectionManager")
}

// failures compares what filters do where what they ask fails.
func (c *comparison) failures(where string, theirs, ours filter) {
	for _, words := range []string{"failure_mode_allow:true", "fail_open:true", "failure_policy:FAIL_OPEN", "allow_missing_or_failed:{",
		"disabled:true"} {
		if strings.Contains(text(ours.GetTypedConfig()), words) && !strings.Contains(text(theirs.GetTypedConfig()), words) {
			c.report(Filter, where, "%s has %s", ours.GetName(), words)
		}
	}
}

// text is a message as a text without spaces after colons.
func text(any *anypb.Any) string {
	m, err := any.UnmarshalNew()
	if err != nil {
		return ""
	}
	return strings.ReplaceAll(strings.ReplaceAll(fmt.Sprint(m), ":  ", ":"), ": ", ":")
}

func manager(c *listenerv3.FilterChain) *hcmv3.HttpConnectionManager {
	h := &hcmv3.HttpConnectionManager{}
	for _, f := range c.GetFilters() {
		if f.GetTypedConfig().MessageIs(h) && f.GetTypedConfig().UnmarshalTo(h) == nil {
			return h
		}
	}
	return h
}

func tokens(c *listenerv3.FilterChain) (out []*jwtv3.JwtProvider) {
	for _, f := range manager(c).GetHttpFilters() {
		j := &jwtv3.JwtAuthentication{}
		if f.GetTypedConfig().MessageIs(j) && f.GetTypedConfig().UnmarshalTo(j) == nil {
			for _, name := range slices.Sorted(maps.Keys(j.GetProviders())) {
				out = append(out, j.GetProviders()[name])
			}
		}
	}
	return out
}

// tokens compares where tokens are looked for, by which keys they are validated and which headers are taken off.
func (c *comparison) tokens(where string, theirs, ours []*jwtv3.JwtProvider) {
	removed := func(list []*jwtv3.JwtProvider) map[string]bool {
		out := map[string]bool{}
		for _, p := range list {
			out["payload in "+strings.ToLower(p.GetForwardPayloadHeader())] = true
			for _, h := range p.GetClaimToHeaders() {
				out["claim in "+strings.ToLower(h.GetHeaderName())] = true
			}
		}
		delete(out, "payload in ")
		return out
	}
	looked := func(list []*jwtv3.JwtProvider) map[string]bool {
		out := map[string]bool{}
		for _, p := range list {
			for _, h := range p.GetFromHeaders() {
				out["header "+strings.ToLower(h.GetName())+" "+h.GetValuePrefix()] = true
			}
			for _, n := range p.GetFromParams() {
				out["parameter "+n] = true
			}
			for _, n := range p.GetFromCookies() {
				out["cookie "+n] = true
			}
			if len(p.GetFromHeaders())+len(p.GetFromParams())+len(p.GetFromCookies()) == 0 {
				out["the default places"] = true
			}
		}
		return out
	}
	for _, x := range missing(removed(theirs), removed(ours)) {
		c.report(Token, where, "what a caller sends is not taken off: %s", x)
	}
	for _, x := range missing(looked(theirs), looked(ours)) {
		c.report(Token, where, "a token is not looked for: %s", x)
	}
	for _, p := range ours {
		i := slices.IndexFunc(theirs, func(x *jwtv3.JwtProvider) bool { return x.GetIssuer() == p.GetIssuer() })
		if i < 0 {
			continue
		}
		// Two key sets verify no token: a proxy has one of them where the keys cannot be used or are not fetched.
		verifies := !slices.Contains([]string{jwks.AcceptsNone, jwks.NotFetched}, string(keys(p)))
		if verifies && !slices.ContainsFunc(theirs, func(x *jwtv3.JwtProvider) bool {
			return x.GetIssuer() == p.GetIssuer() && bytes.Equal(keys(x), keys(p))
		}) {
			c.report(Token, where, "other keys of issuer %s: %.60q; istiod: %.60q", p.GetIssuer(), keys(p), keys(theirs[i]))
		}
		if !slices.ContainsFunc(theirs, func(x *jwtv3.JwtProvider) bool {
			return x.GetIssuer() == p.GetIssuer() && (len(x.GetAudiences()) == 0 || len(p.GetAudiences()) > 0)
		}) {
			c.report(Token, where, "any audience of issuer %s", p.GetIssuer())
		}
		if !slices.ContainsFunc(theirs, func(x *jwtv3.JwtProvider) bool {
			return x.GetIssuer() == p.GetIssuer() && (x.GetForward() || !p.GetForward())
		}) {
			c.report(Token, where, "a token of issuer %s is passed on", p.GetIssuer())
		}
	}
}

func keys(p *jwtv3.JwtProvider) []byte {
	if u := p.GetRemoteJwks().GetHttpUri().GetUri(); u != "" {
		return []byte(u)
	}
	return []byte(source(p.GetLocalJwks()))
}

func missing(theirs, ours map[string]bool) (out []string) {
	for _, x := range slices.Sorted(maps.Keys(theirs)) {
		if !ours[x] {
			out = append(out, x)
		}
	}
	return out
}

// leads reports whether a route leads to a cluster of ours. If it leads to none, Envoy answers its requests with an
// error.
func (c *comparison) leads(r *routev3.Route) bool {
	to := r.GetRoute()
	if to == nil {
		return false
	}
	there := func(name string) bool { return find(c.ours[envoy.ClusterType], name) != nil }
	switch x := to.GetClusterSpecifier().(type) {
	case *routev3.RouteAction_Cluster:
		return there(x.Cluster)
	case *routev3.RouteAction_WeightedClusters:
		return slices.ContainsFunc(x.WeightedClusters.GetClusters(),
			func(w *routev3.WeightedCluster_ClusterWeight) bool { return there(w.GetName()) })
	}
	return true
}

// hosts compares which hosts routes are for, and looks for what patches of EnvoyFilters have left.
func (c *comparison) hosts() error {
	theirs, err := decode[routev3.RouteConfiguration](c.theirs[envoy.RouteType])
	if err != nil {
		return err
	}
	ours, err := decode[routev3.RouteConfiguration](c.ours[envoy.RouteType])
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(ours)) {
		if theirs[name] == nil {
			continue // no listener names it, or one that is visible
		}
		domains := map[string]bool{}
		for _, h := range theirs[name].GetVirtualHosts() {
			for _, d := range h.GetDomains() {
				domains[strings.ToLower(d)] = true
			}
		}
		for _, h := range ours[name].GetVirtualHosts() {
			if !slices.ContainsFunc(h.GetRoutes(), c.leads) {
				continue
			}
			for _, d := range h.GetDomains() {
				if !domains[strings.ToLower(d)] {
					c.report(Visible, "route configuration "+name, "the host %s", d)
				}
			}
		}
	}
	for _, url := range []string{envoy.ListenerType, envoy.RouteType, envoy.ClusterType, envoy.ExtensionType} {
		var both []*envoy.Resource // without ours there is nothing that lacks a patch
		for _, r := range c.theirs[url] {
			if find(c.ours[url], r.Name) != nil {
				both = append(both, r)
			}
		}
		for _, word := range markers(both) {
			if !slices.ContainsFunc(c.ours[url], func(r *envoy.Resource) bool { return bytes.Contains(r.Bytes(), []byte(word)) }) {
				c.report(Filter, url[strings.LastIndexByte(url, '.')+1:], "what a patch put there is missing: %s", word)
			}
		}
	}
	return nil
}

// markers returns the words by which patches in testdata are found again: marker- and letters. If the byte before a
// word is the length of a shorter text, as it is in the wire format of Protocol Buffers, the word ends there.
func markers(list []*envoy.Resource) (out []string) {
	for _, r := range list {
		for b := r.Bytes(); ; {
			i := bytes.Index(b, []byte("marker-"))
			if i < 0 {
				break
			}
			length := 0
			if i > 0 {
				length = int(b[i-1])
			}
			b = b[i:]
			n := len("marker-")
			for n < len(b) && b[n] >= 'a' && b[n] <= 'z' && n != length {
				n++
			}
			if word := string(b[:n]); !slices.Contains(out, word) {
				out = append(out, word)
			}
			b = b[n:]
		}
	}
	slices.SortFunc(out, cmp.Compare[string])
	return out
}
