package openness

import (
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/proto"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/inspect/trace"
)

// Kind is how one configuration is more open than another.
type Kind string

// The kinds of openness.
const (
	Passes     Kind = "passes"     // a request reaches an application, and the other configuration refuses it
	Asks       Kind = "asks"       // no authorizer is asked about a request
	Leaves     Kind = "leaves"     // a request goes to where it was meant to go, and the other routes it
	Elsewhere  Kind = "elsewhere"  // a request goes to another cluster
	Plaintext  Kind = "plaintext"  // no TLS to an endpoint
	Unverified Kind = "unverified" // a certificate is verified less, or not at all
	Weaker     Kind = "weaker"     // older TLS, or more cipher suites
	Visible    Kind = "visible"    // a host or a cluster that the other configuration lacks
	Filter     Kind = "filter"     // a filter is missing, or lets more through
	Token      Kind = "token"      // a token is validated less, or a header is not taken off
	Refused    Kind = "refused"    // Envoy refuses the resource, so that the proxy keeps what it had
)

// Difference is one way in which this control plane's configuration is more open than istiod's.
type Difference struct {
	Proxy Proxy
	Kind  Kind
	Where string // a request, or a resource
	Text  string
}

func (d Difference) String() string {
	return fmt.Sprintf("%s: %s: %s: %s", d.Proxy, d.Kind, d.Where, d.Text)
}

// comparison collects differences, one of each kind and text.
type comparison struct {
	proxy  Proxy
	theirs trace.Config
	ours   trace.Config
	found  []Difference
	seen   map[string]bool
}

func (c *comparison) report(kind Kind, where, format string, args ...any) {
	d := Difference{c.proxy, kind, where, fmt.Sprintf(format, args...)}
	if key := string(kind) + d.Text; !c.seen[key] {
		c.seen[key] = true
		c.found = append(c.found, d)
	}
}

// Compare returns where our configuration of a proxy is more open than theirs. Theirs is taken as it is written, also
// where Envoy refuses it: that is what it means to close.
func Compare(s Slot, w World, p Proxy, theirs, ours trace.Config) ([]Difference, error) {
	c := &comparison{proxy: p, theirs: theirs, ours: ours, seen: map[string]bool{}}
	if same(c.theirs, ours) {
		return nil, nil
	}
	for _, list := range ours {
		for _, r := range list {
			if err := validity(r); err != nil {
				c.report(Refused, r.Name, "%v", err)
			}
		}
	}
	seed := fnv.New64a()
	_, _ = seed.Write([]byte(w.Name))
	r := rand.New(rand.NewPCG(seed.Sum64(), 1))
	v := sampled(s, w)
	var err error
	if p == Gateway {
		err = c.requests(v.gateway(s, r))
	} else {
		err = c.requests(append(v.inbound(s, r, 40), v.outbound(s, r)...))
	}
	if err != nil {
		return nil, err
	}
	if err := c.clusters(); err != nil {
		return nil, err
	}
	if err := c.listeners(); err != nil {
		return nil, err
	}
	return c.found, c.hosts()
}

// same reports whether two configurations are the same bytes.
func same(a, b trace.Config) bool {
	for _, url := range []string{envoy.ListenerType, envoy.ClusterType, envoy.RouteType, envoy.EndpointType, envoy.ExtensionType} {
		if !sameResources(a[url], b[url]) {
			return false
		}
	}
	return true
}

func sameResources(a, b []*envoy.Resource) bool {
	return slices.EqualFunc(byName(a), byName(b), func(x, y *envoy.Resource) bool {
		return x.Name == y.Name && x.Version == y.Version
	})
}

func byName(list []*envoy.Resource) []*envoy.Resource {
	return slices.SortedFunc(slices.Values(list), func(x, y *envoy.Resource) int { return strings.Compare(x.Name, y.Name) })
}

// requests follows requests through both configurations.
func (c *comparison) requests(list []trace.Request) error {
	type pair struct{ theirs, ours trace.Config }
	narrow := map[string]pair{}
	rest := true
	for _, url := range []string{envoy.ClusterType, envoy.RouteType, envoy.EndpointType} {
		rest = rest && sameResources(c.theirs[url], c.ours[url])
	}
	for _, r := range list {
		key := fmt.Sprint(r.Inbound, r.Port)
		p, ok := narrow[key]
		if !ok {
			p = pair{taking(c.theirs, r), taking(c.ours, r)}
			narrow[key] = p
		}
		if rest && sameResources(p.theirs[envoy.ListenerType], p.ours[envoy.ListenerType]) {
			continue
		}
		a, err := trace.Follow(p.theirs, r)
		if err != nil {
			return err
		}
		b, err := trace.Follow(p.ours, r)
		if err != nil {
			return err
		}
		c.answers(request(r), a, b)
	}
	return nil
}

// taking returns a configuration with those listeners alone that may take a request, so that no others are decoded.
func taking(all trace.Config, r trace.Request) trace.Config {
	out := maps.Clone(all)
	out[envoy.ListenerType] = nil
	for _, l := range all[envoy.ListenerType] {
		if r.Inbound != (l.Name == "virtualInbound") {
			continue
		}
		listeners, err := envoy.Decode[listenerv3.Listener]([]*envoy.Resource{l})
		if err != nil || r.Inbound || r.Gateway || l.Name == "virtualOutbound" ||
			listeners[0].GetAddress().GetSocketAddress().GetPortValue() == r.Port {
			out[envoy.ListenerType] = append(out[envoy.ListenerType], l)
		}
	}
	return out
}

// request is a request as a text.
func request(r trace.Request) string {
	direction := "out"
	switch {
	case r.Inbound:
		direction = "in"
	case r.Gateway:
		direction = "from outside"
	}
	text := fmt.Sprintf("%s port %d at %s, %s %s%s from %s", direction, r.Port, r.Address, r.Method, r.Authority, r.Path, r.SourceAddress)
	if r.Identity != "" {
		text += " as " + r.Identity
	}
	if r.TLS {
		text += fmt.Sprintf(" by TLS (%s %s)", r.SNI, strings.Join(r.ALPN, ","))
	}
	if len(r.Headers) > 0 {
		text += fmt.Sprintf(" with %v", r.Headers)
	}
	if r.Claims != nil {
		text += fmt.Sprintf(" claims %v", r.Claims)
	}
	return text
}

// noSocket is a socket that no workload has: connections to it are refused.
const noSocket = "/dev/null/unusable"

func passes(a *trace.Answer) bool {
	refuses := func(t trace.Target) bool {
		return slices.ContainsFunc(t.Endpoints, func(e trace.Endpoint) bool { return e.Address == noSocket })
	}
	return a.Status == 200 && !a.Answered && !slices.ContainsFunc(a.Targets, refuses)
}

// answers compares what becomes of a request.
func (c *comparison) answers(where string, theirs, ours *trace.Answer) {
	if !passes(ours) {
		return
	}
	if !passes(theirs) {
		c.report(Passes, where, "to %s; istiod: %d, %s", clustersOf(ours), theirs.Status, theirs.Reason)
		return
	}
	if theirs.Asked && !ours.Asked {
		c.report(Asks, where, "to %s", clustersOf(ours))
	}
	if theirs.HTTP && !ours.HTTP {
		c.report(Filter, where, "the connection passes to %s, and no filter reads the request", clustersOf(ours))
	}
	at := map[string]trace.Target{}
	for _, t := range theirs.Targets {
		at[t.Cluster] = t
	}
	for _, t := range ours.Targets {
		other, ok := at[t.Cluster]
		switch {
		case !ok && t.Original:
			c.report(Leaves, where, "to %s; istiod: %s", clustersOf(ours), clustersOf(theirs))
		case !ok:
			c.report(Elsewhere, where, "to %s; istiod: %s", clustersOf(ours), clustersOf(theirs))
		case t.Original && other.TLS != "" && t.TLS == "":
			c.report(Plaintext, where, "to %s; istiod: %s", t.Cluster, other.TLS)
		}
		for _, e := range t.Endpoints {
			i := slices.IndexFunc(other.Endpoints, func(x trace.Endpoint) bool { return x.Address == e.Address && x.Port == e.Port })
			if i >= 0 && other.Endpoints[i].TLS != "" && e.TLS == "" {
				c.report(Plaintext, where, "to %s of %s; istiod: %s", e.Address, t.Cluster, other.Endpoints[i].TLS)
			}
		}
	}
}

func clustersOf(a *trace.Answer) string {
	var names []string
	for _, t := range a.Targets {
		names = append(names, t.Cluster)
	}
	return strings.Join(names, ", ")
}

// find returns the resource of a name, nil if there is none.
func find(list []*envoy.Resource, name string) *envoy.Resource {
	for _, r := range list {
		if r.Name == name {
			return r
		}
	}
	return nil
}

// decode reads the resources of a type, by name.
func decode[T any, M interface {
	*T
	proto.Message
}](list []*envoy.Resource) (map[string]M, error) {
	messages, err := envoy.Decode[T, M](list)
	if err != nil {
		return nil, err
	}
	out := make(map[string]M, len(list))
	for i, r := range list {
		out[r.Name] = messages[i]
	}
	return out, nil
}
