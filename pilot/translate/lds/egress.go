package lds

import (
	"cmp"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"

	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/api/protocols"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
	"github.com/istiod-lite/istiod-lite/pilot/translate/view"
	"github.com/istiod-lite/istiod-lite/registry"
)

// BindKey is the address and port that an outbound listener binds. It determines the listener's name.
type BindKey struct {
	Bind string
	Port uint32 // 0 for a socket
}

func bindKeyOf(bind string, port uint32) BindKey {
	if isSocket(bind) {
		return BindKey{Bind: bind}
	}
	return BindKey{bind, port}
}

func isSocket(bind string) bool { return strings.HasPrefix(bind, "unix://") }

// listenerBuilder collects the service ports that share one bind key.
type listenerBuilder struct {
	BindKey
	protocol  protocols.Protocol // of the first service port; Unsupported once it is sniffed
	route     string
	chains    []tcpChain
	matches   map[chainMatch]struct{} // matches of the chains, if there are several
	grpcWeb   bool                    // whether a service port speaks gRPC-Web
	bindsPort bool
	explicit  bool // whether it is a Sidecar's own listener
	wildcard  bool
	plain     bool // whether HTTP gets what no other chain matches, and is not sniffed
	contested bool // another protocol wanted to share the HTTP listener: a port without a protocol does not replace it
}

// outboundBuilder collects the listeners of one scope.
type outboundBuilder struct {
	listeners     *Listeners
	view          *view.View
	scope         *scope.Scope
	cohort        cohort.Inputs
	builders      map[BindKey]*listenerBuilder
	reservedPorts map[uint32]bool // ports of a Sidecar's own listeners, whose requests the catch-all leaves to them

	only      map[BindKey]struct{} // bind keys to build; nil for all
	onlyPorts map[uint32]struct{}  // ports of only
	context   proxyContext
	fallback  string // cluster for traffic to no service
}

// restrictTo limits the builder to some bind keys.
func (l *outboundBuilder) restrictTo(keys []BindKey) {
	l.only, l.onlyPorts = make(map[BindKey]struct{}, len(keys)), make(map[uint32]struct{}, len(keys))
	for _, p := range keys {
		l.only[p], l.onlyPorts[p.Port] = struct{}{}, struct{}{}
	}
}

// egressBuilder returns the builder of one egress listener.
func (l *outboundBuilder) egressBuilder(e *scope.Egress) egressBuilder {
	spec := e.Listener
	o := egressBuilder{outboundBuilder: l, egress: e, explicit: spec.GetPort() != nil, bind: spec.GetBind()}
	o.bindsPort = l.cohort.Outbound.Interception == node.None || spec.GetCaptureMode() == networkingv1alpha3.CaptureMode_NONE ||
		isSocket(o.bind)
	if o.bind == "" && o.bindsPort {
		o.bind = envoy.Loopback(l.cohort.Client.IPv4)
	}
	return o
}

// relevantServices returns the services that may affect the bind keys to build.
func (o egressBuilder) relevantServices() iter.Seq[scope.Service] {
	number := o.egress.Listener.GetPort().GetNumber()
	seen := map[scope.ListenerKey]struct{}{}
	for p := range o.only {
		at := scope.ListenerKey{Address: p.Bind, Port: p.Port}
		switch {
		case o.egress.HTTPProxy:
			if p == bindKeyOf(cmp.Or(o.bind, envoy.Wildcard(o.cohort.Client.IPv4)), number) {
				return o.egress.Services
			}
			continue
		case o.bind != "" && o.bind != p.Bind:
			continue
		case isSocket(p.Bind) && number == 0:
			return o.egress.Services
		case isSocket(p.Bind):
			at = scope.ListenerKey{Port: number}
		case o.bind != "" || p.Bind == envoy.Wildcard(o.cohort.Client.IPv4):
			at.Address = "" // services of any address are on it
			at.Wildcard = o.bind == "" && !o.explicit
		}
		seen[at] = struct{}{}
	}
	return slices.Values(o.egress.ListeningOn(slices.Collect(maps.Keys(seen))))
}

// addEgress adds some services of one egress listener.
func (l *outboundBuilder) addEgress(o egressBuilder, services iter.Seq[scope.Service]) {
	spec, proxy := o.egress.Listener, o.egress.HTTPProxy
	port := spec.GetPort().GetNumber()
	if o.explicit && (!proxy || o.bind == "") { // the catch-all does not collide with an HTTP proxy that has its own bind
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
				// the listener's protocol replaces the service port's, and is sniffed if it has none
				q.Protocol = protocols.Parse(spec.Port.Protocol)
			} else if l.reservedPorts[p.Number] && q.Protocol.IsHTTP() {
				continue
			}
			if q.Protocol != protocols.UDP {
				o.addPort(s.Service, q)
			}
			if proxy { // all ports lead to the same listener
				return
			}
		}
	}
}

// ports returns the imported ports of a service. If few bind keys are built, it returns only ports that may belong to
// them.
func (o egressBuilder) ports(s scope.Service) iter.Seq[*registry.Port] {
	// the bind key has no port, or not the service's
	if o.onlyPorts == nil || len(o.onlyPorts) >= len(s.Ports) || o.egress.HTTPProxy || isSocket(o.bind) {
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

// egressBuilder adds the services of one egress listener to the outbound listeners.
type egressBuilder struct {
	*outboundBuilder
	egress    *scope.Egress
	bind      string // empty if it depends on protocol and service
	bindsPort bool
	explicit  bool
	perPod    bool // whether the ports to add have a chain for each endpoint address
}

// addPort adds one service port to each bind key that it needs.
func (o egressBuilder) addPort(s *registry.Service, p registry.Port) {
	at := s.VersionFor(o.cohort.Client.Cluster)
	if scope.ReachedPerEndpoint(at) && !p.Protocol.IsHTTP() && o.bind == "" {
		o.addHeadless(s, p)
		return
	}
	if p.Protocol.IsHTTP() {
		bind := o.bind
		if bind == "" {
			bind = envoy.Wildcard(o.cohort.Client.IPv4)
		}
		o.addTo(bind, s, p, netip.Prefix{})
		return
	}
	if o.bind != "" {
		o.addTo(o.bind, s, p, netip.Prefix{})
		return
	}
	addresses := at.Addresses
	if len(addresses) == 0 && o.cohort.Client.AutoAddress {
		addresses = at.AutoAddress
	}
	for _, a := range addresses {
		if prefix, err := netip.ParsePrefix(a); err == nil && o.family(prefix.Addr()) {
			o.addTo(envoy.Wildcard(o.cohort.Client.IPv4), s, p, prefix.Masked())
		} else if ip, err := netip.ParseAddr(a); err == nil && o.family(ip) {
			o.addTo(a, s, p, netip.Prefix{})
		}
	}
	if len(addresses) == 0 {
		o.addTo(envoy.Wildcard(o.cohort.Client.IPv4), s, p, netip.Prefix{})
	}
}

func (o egressBuilder) family(ip netip.Addr) bool {
	if ip.Unmap().Is4() {
		return o.cohort.Client.IPv4
	}
	return o.cohort.Client.IPv6
}

// addHeadless adds a listener for each endpoint address, because only the address shows which service a connection is
// for. If HeadlessChains is set, it adds a chain for each address to the wildcard listener instead. TLS, detected
// protocols and protocols with a filter of their own keep the listeners: an address decides before a server name or a
// protocol, and such filters share no port.
func (o egressBuilder) addHeadless(s *registry.Service, p registry.Port) {
	o.perPod = o.view.HeadlessChains() && p.Protocol.IsTCP() && !p.Protocol.IsTLS() && !exclusive(p.Protocol)
	last, cluster := "", cmp.Or(o.cohort.Client.Cluster, o.view.Cluster())
	for _, e := range o.view.Endpoints(s.Key()).ByPort(p.Name) {
		if e.Address == last || !e.CallableFrom(cluster) {
			continue
		}
		last = e.Address
		switch ip, err := netip.ParseAddr(e.Address); {
		case err != nil || !o.family(ip):
		case o.perPod:
			o.addTo(envoy.Wildcard(o.cohort.Client.IPv4), s, p, netip.PrefixFrom(ip, ip.BitLen()))
		default:
			o.addTo(e.Address, s, p, netip.Prefix{})
		}
	}
}

// addTo adds a service port to the listener of a bind key, by Istio's rules for ports that several services share.
func (o egressBuilder) addTo(bind string, s *registry.Service, p registry.Port, prefix netip.Prefix) {
	onWildcard := bind == envoy.Wildcard(o.cohort.Client.IPv4)
	if m := o.view.Mesh(); onWildcard && (p.Number == uint32(m.GetProxyListenPort()) || p.Number == uint32(m.GetProxyInboundListenPort())) {
		return // the sidecar's own port
	}
	if onWildcard && o.cohort.Outbound.Sockets.Take(p.Number, o.bindsPort) {
		return // Envoy would reject the listener, because it, or its agent, already listens there
	}
	key := bindKeyOf(bind, p.Number)
	if _, ok := o.only[key]; !ok && o.only != nil {
		return
	}
	have := o.builders[key]
	if !o.explicit && (have != nil && have.explicit || onWildcard && o.reservedPorts[p.Number]) {
		return // the Sidecar's own listener has the port, here or for requests to all services
	}
	route := ""
	switch {
	case p.Protocol.IsHTTP() && isSocket(bind):
		route = names.UnixRoute(bind)
	case p.Protocol.IsHTTP(), p.Protocol.Sniffed() && onWildcard: // on the wildcard address the host header selects the service
		route = names.Route(p.Number)
	case p.Protocol.Sniffed():
		route = names.SniffedRoute(s.Host, p.Number)
	}
	next := &listenerBuilder{
		BindKey: key, protocol: p.Protocol, route: route, bindsPort: o.bindsPort, explicit: o.explicit,
		wildcard: onWildcard && (o.bind == "" || !o.explicit) && p.Protocol != protocols.HTTPProxy,
	}
	next.grpcWeb = p.Protocol == protocols.GRPCWeb || have != nil && have.grpcWeb
	if have != nil {
		have.grpcWeb = next.grpcWeb
	}
	var chains []tcpChain
	if !p.Protocol.IsHTTP() {
		chains = o.tcpChains(s, p, onWildcard, prefix)
		o.addChains(next, chains)
	}
	switch {
	case have == nil:
		o.builders[key] = next
	case exclusive(p.Protocol) || exclusive(have.protocol):
		o.resolveConflict(have, next, chains)
	case p.Protocol.IsHTTP():
		if have.protocol.IsTCP() && onWildcard {
			have.route, have.protocol = route, protocols.Unsupported
		}
	case p.Protocol.Sniffed():
		switch {
		case have.protocol.IsHTTP() && onWildcard: // the port's routes include it already, and other traffic may be for other services
		case have.protocol.IsHTTP() && have.contested:
			recordConflict(o.view, key)
		case have.protocol.IsHTTP():
			o.builders[key] = next
		case have.protocol.IsTCP():
			have.route, have.protocol = route, protocols.Unsupported
			o.addChains(have, chains)
		default:
			o.addChains(have, chains)
		}
	default:
		if have.protocol.IsHTTP() {
			if !onWildcard && !slices.ContainsFunc(chains, tcpChain.matchesSome) {
				recordConflict(o.view, key)
				have.contested = true
				return
			}
			have.protocol, have.plain = protocols.Unsupported, !onWildcard
		}
		o.addChains(have, chains)
	}
}

// exclusive reports whether the filter of a protocol cannot share a port with others.
func exclusive(p protocols.Protocol) bool { return p == protocols.Mongo || p == protocols.MySQL }

// addChains adds chains without matches that an earlier chain has: Envoy rejects a listener in which two chains match
// the same name.
func (o egressBuilder) addChains(s *listenerBuilder, chains []tcpChain) {
	if s.plain {
		if own := slices.DeleteFunc(slices.Clone(chains), tcpChain.matchesAll); len(own) < len(chains) {
			recordConflict(o.view, s.BindKey) // HTTP has what no other chain matches
			chains = own
		}
	}
	if len(s.chains) == 0 && len(chains) == 1 { // the usual case
		s.chains = chains
		return
	}
	if s.matches == nil {
		s.matches = map[chainMatch]struct{}{}
		for _, h := range s.chains {
			for m := range h.chainMatches {
				s.matches[m] = struct{}{}
			}
		}
	}
	for _, c := range chains {
		o.addChain(s, c)
	}
}

func (o egressBuilder) addChain(s *listenerBuilder, c tcpChain) {
	taken := func(m chainMatch) bool { _, ok := s.matches[m]; return ok }
	// A chain matches each of its names in each of its ranges. A range or a name is removed if one of its combinations
	// is taken.
	servers, prefixes := slices.Collect(c.servers.All), slices.Collect(c.prefixes.All)
	free := func(some tcpChain) bool {
		return !lists.Any(some.chainMatches, func(m chainMatch) bool { return taken(m) })
	}
	if !free(c) {
		recordConflict(o.view, s.BindKey)
		if servers != nil {
			servers = slices.DeleteFunc(servers, func(name string) bool {
				return !free(tcpChain{servers: frozen.ListOf(name), prefixes: c.prefixes})
			})
		} else {
			prefixes = slices.DeleteFunc(prefixes, func(p netip.Prefix) bool { return !free(tcpChain{prefixes: frozen.ListOf(p)}) })
		}
		if len(servers)+len(prefixes) == 0 || c.servers.Empty() != (len(servers) == 0) {
			return
		}
		c.servers, c.prefixes = frozen.ListOf(servers...), frozen.ListOf(prefixes...)
	}
	for m := range c.chainMatches {
		s.matches[m] = struct{}{}
	}
	s.chains = append(s.chains, c)
}

// chainMatch is one match of a chain: a server name, or any if that is empty, in a range of addresses.
type chainMatch struct {
	prefix netip.Prefix
	name   string
}

func (o egressBuilder) resolveConflict(have, next *listenerBuilder, chains []tcpChain) {
	if have.protocol == next.protocol && len(chains) > 0 {
		o.addChains(have, chains)
		return
	}
	recordConflict(o.view, have.BindKey)
}

// recordConflict records that a service cannot be reached at a bind key because another one has it.
func recordConflict(v *view.View, key BindKey) {
	v.Log.Add(key, view.ConflictOutbound, names.Listener(key.Bind, key.Port))
}

// tcpChains returns the chains for a port of a service: those for the VirtualServices that route its connections, and
// the service's own. The own is left out if a route takes every connection. For TLS it is left out if there is any
// route, as in istiod: connections that no route matches by name are traffic to no known service.
func (o egressBuilder) tcpChains(s *registry.Service, p registry.Port, onWildcard bool, prefix netip.Prefix) []tcpChain {
	var chains []tcpChain
	own := tcpChain{protocol: p.Protocol}
	if prefix.IsValid() {
		own.prefixes = frozen.ListOf(prefix)
	}
	for _, vs := range o.egress.ConnectionRoutes(s.Host) {
		options := feature.RouteOptions{
			Object: vs.Object, Port: p.Number, Gateway: "mesh", Namespace: o.cohort.Client.Namespace, Domain: o.view.Domain(),
			SourceMatches: scope.MatchFilter(vs.Spec, o.cohort.Client.ExcludedMatchesOf(vs.Object)),
		}
		for _, r := range o.listeners.hooks.ConnectionRoutes(options, p.Protocol.IsTLS()) {
			if len(r.Destinations) == 0 {
				continue
			}
			subnets := r.Subnets
			if o.perPod && len(subnets) > 0 { // the chain is for one address: the subnets have it or not
				if !slices.ContainsFunc(subnets, func(n netip.Prefix) bool { return n.Contains(prefix.Addr()) }) {
					continue
				}
				subnets = nil
			}
			servers := slices.DeleteFunc(r.Servers, scope.IsPartial) // Envoy matches no pattern that ends within a label
			if slices.Contains(servers, "*") {
				servers = nil
			} else if len(servers) == 0 && p.Protocol.IsTLS() {
				continue
			}
			c := own
			c.to, c.servers, c.config = destination(o.view, o.cohort.Client, vs, p.Number, r.Destinations), frozen.ListOf(servers...),
				vs.Object.Path()
			if len(subnets) > 0 {
				c.prefixes = frozen.ListOf(subnets...)
				if !p.Protocol.IsTLS() {
					c.config = ""
				}
			}
			if chains = append(chains, c); !p.Protocol.IsTLS() && len(subnets) == 0 {
				return chains
			}
		}
	}
	if p.Protocol.IsTLS() && len(chains) > 0 {
		return chains
	}
	cluster := names.Cluster(names.Outbound, p.Number, "", s.Host)
	own.to = tcpDestination{statPrefix: cluster, clusters: frozen.ListOf(weightedCluster{name: cluster})}
	own.to.resolved = resolvedPort(s, p.Number)
	if pattern := o.view.Mesh().GetOutboundClusterStatName(); pattern != "" {
		own.to.statPrefix = view.StatName(pattern, s, p.Number, 0, "")
	}
	own.to.connection = connection(o.view, o.view.ServiceRule(o.cohort.Client, s), p.Number)
	if p.Protocol.IsTLS() && (onWildcard || prefix.IsValid() || own.to.resolved != 0 || o.bind != "" && o.hasRange(s)) {
		own.servers = frozen.ListOf(o.serverNames(s)...)
	}
	return append(chains, own)
}

// hasRange reports whether the first address of a service is a range, as for a service without an address of its own.
func (o egressBuilder) hasRange(s *registry.Service) bool {
	addresses := s.VersionFor(o.cohort.Client.Cluster).Addresses
	if len(addresses) == 0 {
		return false
	}
	_, err := netip.ParsePrefix(addresses[0])
	return err == nil
}

// serverNames returns the names by which clients ask for a service in TLS, sorted: its host, and its aliases with the
// short forms that a search path allows.
func (o egressBuilder) serverNames(s *registry.Service) []string {
	list := []string{s.Host}
	for _, a := range o.scope.Aliases(s) {
		list = append(list, names.Domains(names.Called{Host: a.Host, Domain: o.cohort.Client.Domain})...)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// chainMatches calls yield for all matches of a chain.
func (c tcpChain) chainMatches(yield func(chainMatch) bool) {
	prefixes, servers := []netip.Prefix{{}}, []string{""}
	if !c.prefixes.Empty() {
		prefixes = slices.Collect(c.prefixes.All)
	}
	if !c.servers.Empty() {
		servers = slices.Collect(c.servers.All)
	}
	for _, p := range prefixes {
		for _, name := range servers {
			if !yield(chainMatch{p, name}) {
				return
			}
		}
	}
}

func (c tcpChain) matchesAll() bool { return c.servers.Empty() && c.prefixes.Empty() }

func (c tcpChain) matchesSome() bool { return !c.matchesAll() }
