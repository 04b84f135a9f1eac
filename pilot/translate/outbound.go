package translate

import (
	"cmp"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	httpinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/http_inspector/v3"
	tlsinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
	"github.com/istiod-lite/istiod-lite/registry"
)

// outboundKey is all that one listener for a sidecar's outgoing traffic depends on.
type outboundKey struct {
	proxyContext
	bind      string
	port      uint32
	bindsPort bool              // it binds its port; else virtualOutbound hands it connections
	route     string            // its routes where it takes HTTP, else empty
	http      registry.Protocol // GRPCWeb where its filter is needed
	matchHTTP bool              // HTTP is told from the rest by sniffing
	chains    frozen.List[tcpChain]
	dual      bool   // it stands for both families' wildcard addresses
	fallback  string // the cluster of the chain for what matches no other; empty without that chain
}

// tcpChain is one chain that forwards bytes.
type tcpChain struct {
	cluster     string
	servers     frozen.List[string] // the TLS server names it takes, empty for any
	prefix      netip.Prefix
	mongo       bool
	maxDuration time.Duration
}

// bindKey is what an outbound listener binds. Each has a name of its own.
type bindKey struct {
	bind string
	port uint32 // 0 on a socket
}

func bindKeyOf(bind string, port uint32) bindKey {
	if isSocket(bind) {
		return bindKey{bind: bind}
	}
	return bindKey{bind, port}
}

func isSocket(bind string) bool { return strings.HasPrefix(bind, "unix://") }

// listenerBuilder gathers what services want of one place.
type listenerBuilder struct {
	bindKey
	protocol  registry.Protocol // of whoever came first; Unsupported once it is sniffed
	route     string
	chains    []tcpChain
	matches   map[chainMatch]struct{} // by chains, once there are several
	grpcWeb   bool                    // some service speaks gRPC-Web
	bindsPort bool
	explicit  bool // a Sidecar's own listener
	wildcard  bool
}

// outboundBuilder gathers the slots of one scope.
type outboundBuilder struct {
	view          *view
	scope         *scope.Scope
	cohort        cohort.Inputs
	builders      map[bindKey]*listenerBuilder
	reservedPorts map[uint32]bool // ports that the Sidecar names itself: the catch-all keeps off them

	only      map[bindKey]struct{} // nothing is put elsewhere; nil: everywhere
	onlyPorts map[uint32]struct{}  // of only
	context   proxyContext
	fallback  string // where traffic goes that no service asked for
}

func (v *view) proxyContext(c node.Capabilities, t cohort.Tags, http10 bool) proxyContext {
	return proxyContext{mesh: v.Mesh, capabilities: c, tags: t, http10: http10}
}

// fallback is where traffic goes that no service asked for.
func (v *view) fallback(s *scope.Scope) string {
	if p := s.Spec().GetOutboundTrafficPolicy(); p != nil {
		if e := p.EgressProxy; e != nil {
			return names.Cluster(names.Outbound, e.GetPort().GetNumber(), e.Subset, e.Host)
		}
		if p.Mode == networkingv1alpha3.OutboundTrafficPolicy_REGISTRY_ONLY {
			return names.BlackHoleCluster
		}
		return names.PassthroughCluster
	}
	if !v.Mesh.AllowAny() {
		return names.BlackHoleCluster
	}
	return names.PassthroughCluster
}

func wildcard(ipv4 bool) string {
	if !ipv4 {
		return "::"
	}
	return "0.0.0.0"
}

func loopback(ipv4 bool) string {
	if !ipv4 {
		return "::1"
	}
	return "127.0.0.1"
}

// restrictTo has nothing put but at some places.
func (l *outboundBuilder) restrictTo(keys []bindKey) {
	l.only, l.onlyPorts = make(map[bindKey]struct{}, len(keys)), make(map[uint32]struct{}, len(keys))
	for _, p := range keys {
		l.only[p], l.onlyPorts[p.port] = struct{}{}, struct{}{}
	}
}

// egressBuilder says how one egress listener opens places.
func (l *outboundBuilder) egressBuilder(e *scope.Egress) egressBuilder {
	spec := e.Listener
	o := egressBuilder{outboundBuilder: l, egress: e, explicit: spec.GetPort() != nil, bind: spec.GetBind()}
	o.bindsPort = l.cohort.Outbound.Interception == node.None || spec.GetCaptureMode() == networkingv1alpha3.CaptureMode_NONE || isSocket(o.bind)
	if o.bind == "" && o.bindsPort {
		o.bind = loopback(l.cohort.Scope.IPv4)
	}
	return o
}

// relevantServices returns the services that can make a difference to the places that are kept to.
func (o egressBuilder) relevantServices() iter.Seq[scope.Service] {
	number := o.egress.Listener.GetPort().GetNumber()
	seen := map[scope.ListenerKey]struct{}{}
	for p := range o.only {
		at := scope.ListenerKey{Address: p.bind, Port: p.port}
		switch {
		case o.egress.HTTPProxy:
			if p == bindKeyOf(cmp.Or(o.bind, wildcard(o.cohort.Scope.IPv4)), number) {
				return o.egress.Services
			}
			continue
		case o.bind != "" && o.bind != p.bind:
			continue
		case isSocket(p.bind) && number == 0:
			return o.egress.Services
		case isSocket(p.bind):
			at = scope.ListenerKey{Port: number}
		case o.bind != "" || p.bind == wildcard(o.cohort.Scope.IPv4):
			at.Address = "" // a service's own does not tell
		}
		seen[at] = struct{}{}
	}
	return slices.Values(o.egress.ListeningOn(slices.Collect(maps.Keys(seen))))
}

// addEgress adds what one egress listener wants for some of its services.
func (l *outboundBuilder) addEgress(o egressBuilder, services iter.Seq[scope.Service]) {
	spec, proxy := o.egress.Listener, o.egress.HTTPProxy
	port := spec.GetPort().GetNumber()
	if o.explicit && (!proxy || o.bind == "") { // the catch-all is not in the way of a proxy with a bind of its own
		defer func() { l.reservedPorts[port] = true }()
	}
	for s := range services {
		if s.Resolution == registry.Alias {
			continue
		}
		for p := range o.ports(s) {
			q := *p
			if proxy {
				q.Number = port
			}
			if o.explicit {
				q.Protocol = portProtocol(spec.Port.Protocol, p.Protocol)
			} else if l.reservedPorts[p.Number] {
				continue
			}
			if q.Protocol != registry.UDP {
				o.addPort(s.Service, q)
			}
			if proxy { // one service is as good as another
				return
			}
		}
	}
}

// ports returns the imported ports of a service: not all of many, where few are kept to.
func (o egressBuilder) ports(s scope.Service) iter.Seq[*registry.Port] {
	if o.onlyPorts == nil || len(o.onlyPorts) >= len(s.Ports) || o.egress.HTTPProxy || isSocket(o.bind) { // of which the place does not say the port
		return s.ImportedPorts
	}
	return func(yield func(*registry.Port) bool) {
		for number := range o.onlyPorts {
			for p := range s.ImportedPortsByNumber(number) {
				if !yield(p) {
					return
				}
			}
		}
	}
}

// portProtocol is the protocol that a Sidecar or Gateway port declares; without one, the service's.
func portProtocol(declared string, otherwise registry.Protocol) registry.Protocol {
	if p := registry.ParseProtocol(declared); p != registry.Unsupported {
		return p
	}
	return otherwise
}

// egressBuilder is one egress listener at work.
type egressBuilder struct {
	*outboundBuilder
	egress    *scope.Egress
	bind      string // empty: by protocol and service
	bindsPort bool
	explicit  bool
}

// addPort finds the places for one service port and puts it there.
func (o egressBuilder) addPort(s *registry.Service, p registry.Port) {
	at := s.VersionFor(o.cohort.Scope.Cluster)
	if scope.ReachedPerEndpoint(at) && !p.Protocol.IsHTTP() && o.bind == "" {
		o.addHeadless(s, p)
		return
	}
	if p.Protocol.IsHTTP() {
		bind := o.bind
		if bind == "" {
			bind = wildcard(o.cohort.Scope.IPv4)
		}
		o.addTo(bind, s, p, netip.Prefix{})
		return
	}
	if o.bind != "" {
		o.addTo(o.bind, s, p, netip.Prefix{})
		return
	}
	addresses := at.Addresses
	if len(addresses) == 0 && o.cohort.Scope.AutoAddress {
		addresses = at.AutoAddress
	}
	for _, a := range addresses {
		if prefix, err := netip.ParsePrefix(a); err == nil && o.family(prefix.Addr()) {
			o.addTo(wildcard(o.cohort.Scope.IPv4), s, p, prefix.Masked())
		} else if ip, err := netip.ParseAddr(a); err == nil && o.family(ip) {
			o.addTo(a, s, p, netip.Prefix{})
		}
	}
	if len(addresses) == 0 {
		o.addTo(wildcard(o.cohort.Scope.IPv4), s, p, netip.Prefix{})
	}
}

func (o egressBuilder) family(ip netip.Addr) bool {
	if ip.Unmap().Is4() {
		return o.cohort.Scope.IPv4
	}
	return o.cohort.Scope.IPv6
}

// addHeadless opens a listener for each address: nothing else tells whom a connection is for.
func (o egressBuilder) addHeadless(s *registry.Service, p registry.Port) {
	last := ""
	for _, e := range o.view.Endpoints(s.Key()).ByPort(p.Name) {
		if e.Address == last {
			continue
		}
		last = e.Address
		if ip, err := netip.ParseAddr(e.Address); err == nil && o.family(ip) {
			o.addTo(e.Address, s, p, netip.Prefix{})
		}
	}
}

// addTo makes a service port part of the listener at a place, by Istio's rules for ports that several services share.
func (o egressBuilder) addTo(bind string, s *registry.Service, p registry.Port, prefix netip.Prefix) {
	onWildcard := bind == wildcard(o.cohort.Scope.IPv4)
	if m := o.view.Mesh; onWildcard && (p.Number == uint32(m.GetProxyListenPort()) || p.Number == uint32(m.GetProxyInboundListenPort())) {
		return // captured traffic arrives there
	}
	key := bindKeyOf(bind, p.Number)
	if _, ok := o.only[key]; !ok && o.only != nil {
		return
	}
	have := o.builders[key]
	route := ""
	switch {
	case p.Protocol.IsHTTP() && isSocket(bind):
		route = names.UnixRoute(bind)
	case p.Protocol.IsHTTP(), p.Protocol.Sniffed() && onWildcard: // on the wildcard address the port's routes tell services apart
		route = names.Route(p.Number)
	case p.Protocol.Sniffed():
		route = names.SniffedRoute(s.Host, p.Number)
	}
	next := &listenerBuilder{bindKey: key, protocol: p.Protocol, route: route, bindsPort: o.bindsPort, explicit: o.explicit, wildcard: onWildcard && (o.bind == "" || !o.explicit) && p.Protocol != registry.HTTPProxy}
	next.grpcWeb = p.Protocol == registry.GRPCWeb || have != nil && have.grpcWeb
	if have != nil {
		have.grpcWeb = next.grpcWeb
	}
	if !p.Protocol.IsHTTP() {
		next.chains = []tcpChain{o.tcpChain(s, p, onWildcard, prefix)}
	}
	switch {
	case have == nil:
		o.builders[key] = next
	case exclusive(p.Protocol) || exclusive(have.protocol):
		o.resolveConflict(have, next)
	case p.Protocol.IsHTTP():
		if have.protocol.IsTCP() && onWildcard {
			have.route, have.protocol = route, registry.Unsupported
		}
	case p.Protocol.Sniffed():
		switch {
		case have.protocol.IsHTTP() && onWildcard: // the port's routes have it already, and other traffic is not its alone
		case have.protocol.IsHTTP():
			o.builders[key] = next
		case have.protocol.IsTCP():
			have.route, have.protocol = route, registry.Unsupported
			o.addChain(have, next.chains[0])
		default:
			o.addChain(have, next.chains[0])
		}
	default:
		if have.protocol.IsHTTP() {
			if !onWildcard {
				o.view.recordListenerConflict(key)
				return
			}
			have.protocol = registry.Unsupported
		}
		o.addChain(have, next.chains[0])
	}
}

// exclusive tells protocols whose filters cannot share a port with others.
func exclusive(p registry.Protocol) bool { return p == registry.Mongo || p == registry.MySQL }

// addChain adds a chain for what no chain before takes: Envoy refuses a listener with two chains for one name.
func (o egressBuilder) addChain(s *listenerBuilder, c tcpChain) {
	if s.matches == nil {
		s.matches = map[chainMatch]struct{}{}
		for _, h := range s.chains {
			s.addMatches(h)
		}
	}
	wanted := c.matchNames()
	free := slices.DeleteFunc(slices.Clone(wanted), func(name string) bool { _, ok := s.matches[chainMatch{c.prefix, name}]; return ok })
	if len(free) < len(wanted) {
		o.view.recordListenerConflict(s.bindKey)
	}
	if len(free) == 0 {
		return
	}
	if !c.servers.Empty() {
		c.servers = frozen.ListOf(free...)
	}
	s.addMatches(c)
	s.chains = append(s.chains, c)
}

func (s *listenerBuilder) addMatches(c tcpChain) {
	for _, name := range c.matchNames() {
		s.matches[chainMatch{c.prefix, name}] = struct{}{}
	}
}

// chainMatch is what a chain takes: a server name, or any where that is empty, in a range of addresses.
type chainMatch struct {
	prefix netip.Prefix
	name   string
}

func (o egressBuilder) resolveConflict(have, next *listenerBuilder) {
	if have.protocol == next.protocol && len(next.chains) > 0 {
		o.addChain(have, next.chains[0])
		return
	}
	o.view.recordListenerConflict(have.bindKey)
}

// recordListenerConflict notes that a service is not reached at a place because of another.
func (v *view) recordListenerConflict(key bindKey) {
	if v.conflicts != nil {
		v.conflicts.partition = key
	}
	v.recordConflict(ConflictOutbound, names.Listener(key.bind, key.port))
}

func (o egressBuilder) tcpChain(s *registry.Service, p registry.Port, onWildcard bool, prefix netip.Prefix) tcpChain {
	c := tcpChain{cluster: names.Cluster(names.Outbound, p.Number, "", s.Host), prefix: prefix, mongo: p.Protocol == registry.Mongo}
	if p.Protocol.IsTLS() && (onWildcard || prefix.IsValid()) {
		c.servers = frozen.ListOf(o.serverNames(s)...)
	}
	c.maxDuration, _ = o.view.serviceRule(o.cohort.Scope, s).Policy(p.Number).MaxConnectionDuration()
	return c
}

// serverNames are those by which clients ask for a service in TLS, sorted: its host, and its aliases as resolv.conf lets them be written.
func (o egressBuilder) serverNames(s *registry.Service) []string {
	list := []string{s.Host}
	for _, a := range o.view.aliases(o.scope, s) {
		list = append(list, names.Domains(names.Called{Host: a.Host, Domain: o.cohort.Scope.Domain})...)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// matchNames are the server names of a chain; of one that takes any, the empty one.
func (c tcpChain) matchNames() []string {
	if c.servers.Empty() {
		return []string{""}
	}
	return slices.Collect(c.servers.All)
}

func (c tcpChain) matchesAll() bool { return c.servers.Empty() && !c.prefix.IsValid() }

const transportSocketTimeout = 15 * time.Second

// buildOutbound makes one listener for outgoing traffic.
func buildOutbound(k outboundKey) *envoy.Resource {
	l := &listenerv3.Listener{
		Name:                             names.Listener(k.bind, k.port),
		Address:                          envoy.Address(k.bind, k.port),
		TrafficDirection:                 corev3.TrafficDirection_OUTBOUND,
		ContinueOnListenerFiltersTimeout: true,
		ListenerFiltersTimeout:           envoy.Duration(0),
		AdditionalAddresses:              additionalIPv6(k.dual, k.port),
	}
	if k.bindsPort {
		l.MaxConnectionsToAcceptPerSocketEvent = envoy.UInt32(1)
	} else {
		l.BindToPort = envoy.Bool(false)
	}
	tls := false
	for c := range k.chains.All {
		chain := &listenerv3.FilterChain{Filters: k.tcpFilters(outbound, c.cluster, c.mongo, c.maxDuration), TransportSocketConnectTimeout: envoy.Duration(transportSocketTimeout)}
		if !c.matchesAll() {
			chain.FilterChainMatch = &listenerv3.FilterChainMatch{}
		}
		if !c.servers.Empty() {
			tls = true
			chain.FilterChainMatch.ServerNames = slices.Collect(c.servers.All)
		}
		if c.prefix.IsValid() {
			chain.FilterChainMatch.PrefixRanges = []*corev3.CidrRange{{AddressPrefix: c.prefix.Addr().String(), PrefixLen: envoy.UInt32(uint32(c.prefix.Bits()))}}
		}
		l.FilterChains = append(l.FilterChains, chain)
	}
	if k.route != "" {
		chain := &listenerv3.FilterChain{
			Filters:                       []*listenerv3.Filter{k.connectionManager(outbound, "outbound_"+l.Name+";", k.route, nil, k.http)},
			TransportSocketConnectTimeout: envoy.Duration(transportSocketTimeout),
		}
		if k.matchHTTP {
			chain.FilterChainMatch = plainHTTP(k.http10)
		}
		l.FilterChains = append(l.FilterChains, chain)
	}
	if tls {
		l.ListenerFilters = append(l.ListenerFilters, tlsInspector(nil))
	}
	if k.matchHTTP {
		l.ListenerFilters = append(l.ListenerFilters, httpInspector(nil))
		l.ListenerFiltersTimeout = k.mesh.GetProtocolDetectionTimeout()
	}
	if k.fallback != "" {
		l.DefaultFilterChain = &listenerv3.FilterChain{
			Name: names.PassthroughFilterChain, FilterChainMatch: &listenerv3.FilterChainMatch{}, Filters: k.tcpFilters(outbound, k.fallback, false, 0),
		}
	} else if len(l.FilterChains) > 1 {
		if i := slices.IndexFunc(l.FilterChains, func(c *listenerv3.FilterChain) bool { return c.FilterChainMatch == nil }); i >= 0 {
			l.DefaultFilterChain = l.FilterChains[i]
			l.FilterChains = slices.Delete(l.FilterChains, i, i+1)
		}
	}
	return envoy.NewResource(l.Name, l)
}

// plainHTTP matches unencrypted HTTP, as http_inspector finds it.
func plainHTTP(http10 bool) *listenerv3.FilterChainMatch {
	m := &listenerv3.FilterChainMatch{TransportProtocol: rawBuffer, ApplicationProtocols: []string{"http/1.1", "h2c"}}
	if http10 {
		m.ApplicationProtocols = []string{"http/1.0", "http/1.1", "h2c"}
	}
	return m
}

// Transport protocols as tls_inspector finds them.
const (
	rawBuffer = "raw_buffer"
	tlsWire   = "tls"
)

func tlsInspector(disabled *listenerv3.ListenerFilterChainMatchPredicate) *listenerv3.ListenerFilter {
	return listenerFilter("envoy.filters.listener.tls_inspector", &tlsinspectorv3.TlsInspector{InitialReadBufferSize: envoy.UInt32(512)}, disabled)
}

func httpInspector(disabled *listenerv3.ListenerFilterChainMatchPredicate) *listenerv3.ListenerFilter {
	return listenerFilter("envoy.filters.listener.http_inspector", &httpinspectorv3.HttpInspector{}, disabled)
}

// virtualOutboundKey is all that the listener depends on to which outgoing connections are redirected.
type virtualOutboundKey struct {
	proxyContext
	bind        string
	transparent bool
	dual        bool
	fallback    string
}

func buildVirtualOutbound(k virtualOutboundKey) *envoy.Resource {
	port := uint32(k.mesh.GetProxyListenPort())
	l := &listenerv3.Listener{
		Name:                                 names.VirtualOutbound,
		Address:                              envoy.Address(k.bind, port),
		TrafficDirection:                     corev3.TrafficDirection_OUTBOUND,
		UseOriginalDst:                       envoy.Bool(true),
		MaxConnectionsToAcceptPerSocketEvent: envoy.UInt32(1),
		FilterChains: []*listenerv3.FilterChain{
			{
				Name:             names.VirtualOutboundBlackhole,
				FilterChainMatch: &listenerv3.FilterChainMatch{DestinationPort: envoy.UInt32(port)},
				Filters:          k.tcpFilters(outbound, names.BlackHoleCluster, false, 0),
			},
			{Name: names.VirtualOutboundCatchall, Filters: k.tcpFilters(outbound, k.fallback, false, 0)},
		},
	}
	l.AdditionalAddresses = additionalIPv6(k.dual, port)
	if k.transparent {
		l.Transparent = envoy.Bool(true)
	}
	return envoy.NewResource(l.Name, l)
}

// additionalIPv6 is the second address of a listener on all addresses of both families.
func additionalIPv6(dual bool, port uint32) []*listenerv3.AdditionalAddress {
	if !dual {
		return nil
	}
	return []*listenerv3.AdditionalAddress{{Address: envoy.Address("::", port)}}
}

// ownHeadlessListeners names the listeners that a pod is not to have of headless services: those for itself.
func (v *view) ownHeadlessListeners(c cohort.Key, set *envoy.Set) *envoy.Names {
	var own []string
	if c.Address != "" && c.Listeners.Value().Outbound.Interception != node.None {
		for t := range c.Inbound.Value().Targets.All {
			if name := names.Listener(c.Address, t.Port); scope.ReachedPerEndpoint(t.Service) && set.Get(name) != nil {
				own = append(own, name)
			}
		}
	}
	return v.t.omitted.Of(own)
}
