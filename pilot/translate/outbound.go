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
	surroundings
	bind      string
	port      uint32
	real      bool              // it binds its port; else virtualOutbound hands it connections
	route     string            // its routes where it takes HTTP, else empty
	http      registry.Protocol // GRPCWeb where its filter is needed
	matchHTTP bool              // HTTP is told from the rest by sniffing
	chains    frozen.List[tcpChain]
	dual      bool   // it stands for both families' wildcard addresses
	fallback  string // the cluster of the chain for what matches no other; empty without that chain
}

// tcpChain is one chain that forwards bytes.
type tcpChain struct {
	cluster string
	servers frozen.List[string] // the TLS server names it takes, empty for any
	prefix  netip.Prefix
	mongo   bool
	longest time.Duration
}

// place is what an outbound listener binds. Each has a name of its own.
type place struct {
	bind string
	port uint32 // 0 on a socket
}

func placeOf(bind string, port uint32) place {
	if isSocket(bind) {
		return place{bind: bind}
	}
	return place{bind, port}
}

func isSocket(bind string) bool { return strings.HasPrefix(bind, "unix://") }

// slot gathers what services want of one place.
type slot struct {
	place
	protocol registry.Protocol // of whoever came first; Unsupported once it is sniffed
	route    string
	chains   []tcpChain
	taken    map[taken]struct{} // by chains, once there are several
	web      bool               // some service speaks gRPC-Web
	real     bool
	explicit bool // a Sidecar's own listener
	wildcard bool
}

// listeners gathers the slots of one scope.
type listeners struct {
	view   *view
	scope  *scope.Scope
	cohort cohort.Inputs
	slots  map[place]*slot
	locked map[uint32]bool // ports that the Sidecar names itself: the catch-all keeps off them

	only     map[place]struct{}  // nothing is put elsewhere; nil: everywhere
	ports    map[uint32]struct{} // of only
	env      surroundings
	fallback string // where traffic goes that no service asked for
}

func (v *view) surroundings(c node.Capabilities, t cohort.Tags, http10 bool) surroundings {
	return surroundings{mesh: v.Mesh, capabilities: c, tags: t, http10: http10}
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

// keepTo has nothing put but at some places.
func (l *listeners) keepTo(places []place) {
	l.only, l.ports = make(map[place]struct{}, len(places)), make(map[uint32]struct{}, len(places))
	for _, p := range places {
		l.only[p], l.ports[p.port] = struct{}{}, struct{}{}
	}
}

// opening says how one egress listener opens places.
func (l *listeners) opening(e *scope.Egress) opening {
	spec := e.Listener
	o := opening{listeners: l, egress: e, explicit: spec.GetPort() != nil, bind: spec.GetBind()}
	o.real = l.cohort.Outbound.Interception == node.None || spec.GetCaptureMode() == networkingv1alpha3.CaptureMode_NONE || isSocket(o.bind)
	if o.bind == "" && o.real {
		o.bind = loopback(l.cohort.Scope.IPv4)
	}
	return o
}

// concerned returns the services that can make a difference to the places that are kept to.
func (o opening) concerned() iter.Seq[scope.Service] {
	number := o.egress.Listener.GetPort().GetNumber()
	seen := map[scope.ListenerKey]struct{}{}
	for p := range o.only {
		at := scope.ListenerKey{Address: p.bind, Port: p.port}
		switch {
		case o.egress.HTTPProxy:
			if p == placeOf(cmp.Or(o.bind, wildcard(o.cohort.Scope.IPv4)), number) {
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

// open adds what one egress listener wants for some of its services.
func (l *listeners) open(o opening, services iter.Seq[scope.Service]) {
	spec, proxy := o.egress.Listener, o.egress.HTTPProxy
	port := spec.GetPort().GetNumber()
	if o.explicit && (!proxy || o.bind == "") { // the catch-all is not in the way of a proxy with a bind of its own
		defer func() { l.locked[port] = true }()
	}
	for s := range services {
		if s.Resolution == registry.Alias {
			continue
		}
		for p := range o.portsOf(s) {
			q := *p
			if proxy {
				q.Number = port
			}
			if o.explicit {
				q.Protocol = portProtocol(spec.Port.Protocol, p.Protocol)
			} else if l.locked[p.Number] {
				continue
			}
			if q.Protocol != registry.UDP {
				o.add(s.Service, q)
			}
			if proxy { // one service is as good as another
				return
			}
		}
	}
}

// portsOf returns the imported ports of a service: not all of many, where few are kept to.
func (o opening) portsOf(s scope.Service) iter.Seq[*registry.Port] {
	if o.ports == nil || len(o.ports) >= len(s.Ports) || o.egress.HTTPProxy || isSocket(o.bind) { // of which the place does not say the port
		return s.ImportedPorts
	}
	return func(yield func(*registry.Port) bool) {
		for number := range o.ports {
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

// opening is one egress listener at work.
type opening struct {
	*listeners
	egress   *scope.Egress
	bind     string // empty: by protocol and service
	real     bool
	explicit bool
}

// add finds the places for one service port and puts it there.
func (o opening) add(s *registry.Service, p registry.Port) {
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
		o.put(bind, s, p, netip.Prefix{})
		return
	}
	if o.bind != "" {
		o.put(o.bind, s, p, netip.Prefix{})
		return
	}
	addresses := at.Addresses
	if len(addresses) == 0 && o.cohort.Scope.AutoAddress {
		addresses = at.AutoAddress
	}
	for _, a := range addresses {
		if prefix, err := netip.ParsePrefix(a); err == nil && o.family(prefix.Addr()) {
			o.put(wildcard(o.cohort.Scope.IPv4), s, p, prefix.Masked())
		} else if ip, err := netip.ParseAddr(a); err == nil && o.family(ip) {
			o.put(a, s, p, netip.Prefix{})
		}
	}
	if len(addresses) == 0 {
		o.put(wildcard(o.cohort.Scope.IPv4), s, p, netip.Prefix{})
	}
}

func (o opening) family(ip netip.Addr) bool {
	if ip.Unmap().Is4() {
		return o.cohort.Scope.IPv4
	}
	return o.cohort.Scope.IPv6
}

// addHeadless opens a listener for each address: nothing else tells whom a connection is for.
func (o opening) addHeadless(s *registry.Service, p registry.Port) {
	last := ""
	for _, e := range o.view.Endpoints(s.Key()).ByPort(p.Name) {
		if e.Address == last {
			continue
		}
		last = e.Address
		if ip, err := netip.ParseAddr(e.Address); err == nil && o.family(ip) {
			o.put(e.Address, s, p, netip.Prefix{})
		}
	}
}

// put makes a service port part of the listener at a place, by Istio's rules for ports that several services share.
func (o opening) put(bind string, s *registry.Service, p registry.Port, prefix netip.Prefix) {
	wild := bind == wildcard(o.cohort.Scope.IPv4)
	if m := o.view.Mesh; wild && (p.Number == uint32(m.GetProxyListenPort()) || p.Number == uint32(m.GetProxyInboundListenPort())) {
		return // captured traffic arrives there
	}
	at := placeOf(bind, p.Number)
	if _, ok := o.only[at]; !ok && o.only != nil {
		return
	}
	have := o.slots[at]
	route := ""
	switch {
	case p.Protocol.IsHTTP() && isSocket(bind):
		route = names.UnixRoute(bind)
	case p.Protocol.IsHTTP(), p.Protocol.Sniffed() && wild: // on the wildcard address the port's routes tell services apart
		route = names.Route(p.Number)
	case p.Protocol.Sniffed():
		route = names.SniffedRoute(s.Host, p.Number)
	}
	next := &slot{place: at, protocol: p.Protocol, route: route, real: o.real, explicit: o.explicit, wildcard: wild && (o.bind == "" || !o.explicit) && p.Protocol != registry.HTTPProxy}
	next.web = p.Protocol == registry.GRPCWeb || have != nil && have.web
	if have != nil {
		have.web = next.web
	}
	if !p.Protocol.IsHTTP() {
		next.chains = []tcpChain{o.chain(s, p, wild, prefix)}
	}
	switch {
	case have == nil:
		o.slots[at] = next
	case exclusive(p.Protocol) || exclusive(have.protocol):
		o.conflict(have, next)
	case p.Protocol.IsHTTP():
		if have.protocol.IsTCP() && wild {
			have.route, have.protocol = route, registry.Unsupported
		}
	case p.Protocol.Sniffed():
		switch {
		case have.protocol.IsHTTP() && wild: // the port's routes have it already, and other traffic is not its alone
		case have.protocol.IsHTTP():
			o.slots[at] = next
		case have.protocol.IsTCP():
			have.route, have.protocol = route, registry.Unsupported
			o.merge(have, next.chains[0])
		default:
			o.merge(have, next.chains[0])
		}
	default:
		if have.protocol.IsHTTP() {
			if !wild {
				o.view.conflict(at)
				return
			}
			have.protocol = registry.Unsupported
		}
		o.merge(have, next.chains[0])
	}
}

// exclusive tells protocols whose filters cannot share a port with others.
func exclusive(p registry.Protocol) bool { return p == registry.Mongo || p == registry.MySQL }

// merge adds a chain for what no chain before takes: Envoy refuses a listener with two chains for one name.
func (o opening) merge(s *slot, c tcpChain) {
	if s.taken == nil {
		s.taken = map[taken]struct{}{}
		for _, h := range s.chains {
			s.take(h)
		}
	}
	all := c.names()
	free := slices.DeleteFunc(slices.Clone(all), func(name string) bool { _, ok := s.taken[taken{c.prefix, name}]; return ok })
	if len(free) < len(all) {
		o.view.conflict(s.place)
	}
	if len(free) == 0 {
		return
	}
	if !c.servers.Empty() {
		c.servers = frozen.ListOf(free...)
	}
	s.take(c)
	s.chains = append(s.chains, c)
}

func (s *slot) take(c tcpChain) {
	for _, name := range c.names() {
		s.taken[taken{c.prefix, name}] = struct{}{}
	}
}

// taken is what a chain takes: a server name, or any where that is empty, in a range of addresses.
type taken struct {
	prefix netip.Prefix
	name   string
}

func (o opening) conflict(have, next *slot) {
	if have.protocol == next.protocol && len(next.chains) > 0 {
		o.merge(have, next.chains[0])
		return
	}
	o.view.conflict(have.place)
}

// conflict notes that a service is not reached at a place because of another.
func (v *view) conflict(at place) {
	if v.notes != nil {
		v.notes.unit = at
	}
	v.problem(ConflictOutbound, names.Listener(at.bind, at.port))
}

func (o opening) chain(s *registry.Service, p registry.Port, wild bool, prefix netip.Prefix) tcpChain {
	c := tcpChain{cluster: names.Cluster(names.Outbound, p.Number, "", s.Host), prefix: prefix, mongo: p.Protocol == registry.Mongo}
	if p.Protocol.IsTLS() && (wild || prefix.IsValid()) {
		c.servers = frozen.ListOf(o.serverNames(s)...)
	}
	c.longest, _ = o.view.serviceRule(o.cohort.Scope, s).Policy(p.Number).MaxConnectionDuration()
	return c
}

// serverNames are those by which clients ask for a service in TLS, sorted: its host, and its aliases as resolv.conf lets them be written.
func (o opening) serverNames(s *registry.Service) []string {
	list := []string{s.Host}
	for _, a := range o.view.aliases(o.scope, s) {
		list = append(list, names.Domains(names.Called{Host: a.Host, Domain: o.cohort.Scope.Domain})...)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// names are the server names of a chain; of one that takes any, the empty one.
func (c tcpChain) names() []string {
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
		AdditionalAddresses:              alsoIPv6(k.dual, k.port),
	}
	if k.real {
		l.MaxConnectionsToAcceptPerSocketEvent = envoy.UInt32(1)
	} else {
		l.BindToPort = envoy.Bool(false)
	}
	tls := false
	for c := range k.chains.All {
		chain := &listenerv3.FilterChain{Filters: k.tcpFilters(outbound, c.cluster, c.mongo, c.longest), TransportSocketConnectTimeout: envoy.Duration(transportSocketTimeout)}
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
	surroundings
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
	l.AdditionalAddresses = alsoIPv6(k.dual, port)
	if k.transparent {
		l.Transparent = envoy.Bool(true)
	}
	return envoy.NewResource(l.Name, l)
}

// alsoIPv6 is the second address of a listener on all addresses of both families.
func alsoIPv6(dual bool, port uint32) []*listenerv3.AdditionalAddress {
	if !dual {
		return nil
	}
	return []*listenerv3.AdditionalAddress{{Address: envoy.Address("::", port)}}
}

// ownListeners names the listeners that a pod is not to have of headless services: those for itself.
func (v *view) ownListeners(c cohort.Key, set *envoy.Set) *envoy.Names {
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
