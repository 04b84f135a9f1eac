package lds

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/protocols"
	"github.com/istiod-lite/istiod-lite/api/servers"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
	"github.com/istiod-lite/istiod-lite/pilot/scope/traffic"
	"github.com/istiod-lite/istiod-lite/pilot/translate/engine"
	"github.com/istiod-lite/istiod-lite/pilot/translate/gateway"
	"github.com/istiod-lite/istiod-lite/pilot/translate/view"
)

// gatewayKey is the whole input of a gateway's listener.
type gatewayKey struct {
	proxyContext
	bind   string
	port   uint32
	chains frozen.List[gatewayChain]
	dual   bool
	quic   bool // whether it takes HTTP/3 on a UDP port

	gateways frozen.List[*kinds.Object] // Gateways of its servers, so that its origins are known
}

// gatewayChain is how a gateway handles the connections to a port that have one of its server names.
type gatewayChain struct {
	use      servers.Use
	servers  frozen.List[string] // TLS server names; empty for any. With AutoPassthrough each is a chain of its own
	tls      *networkingv1alpha3.ServerTLSSettings
	route    string             // route configuration of a chain for HTTP
	protocol protocols.Protocol // protocol of a chain for HTTP
	to       tcpDestination     // destination of a chain for connections
}

// tcpDestination is the destination of forwarded connections: one cluster, or several by weight.
type tcpDestination struct {
	statPrefix string
	clusters   frozen.List[weightedCluster]
	connection traffic.Connection
	resolved   uint32 // port at which the server name of a connection is called, if proxies resolve it; else 0
	mutual     bool   // whether connections use the mesh's own TLS
}

type weightedCluster struct {
	name   string
	weight uint32
}

// gatewayListenerBuilder collects the servers that share a bind key.
type gatewayListenerBuilder struct {
	gatewayKey
	view    *view.View
	servers servers.Port
	chains  []gatewayChain
	quic    map[uint32][]gatewayChain // chains that also take HTTP/3, by UDP port

	of   []*kinds.Object
	seen map[*kinds.Object]struct{} // Gateways in of
}

// Gateway generates the listeners of a gateway, as one partition. There are none while no Gateway selects it.
func (m *Listeners) Gateway(v *view.View, c cohort.Inputs) engine.Generator[struct{}] {
	return engine.Single(func() []*envoy.Resource { return m.gatewayListeners(v, c) }, engine.IfHosts)
}

func (m *Listeners) gatewayListeners(v *view.View, c cohort.Inputs) []*envoy.Resource {
	builders, order := map[BindKey]*gatewayListenerBuilder{}, []*gatewayListenerBuilder{}
	for _, s := range v.Gateways.Servers(c.Client) {
		use := s.Use()
		if use == servers.Closed || c.Outbound.Unprivileged && s.Target < 1024 {
			continue // Envoy could not bind the port, and would reject the listener
		}
		bind, dual := s.Bind, false
		if bind == "" {
			bind, dual = envoy.Wildcard(c.Client.IPv4), c.Client.IPv4 && c.Client.IPv6
		}
		if bind == envoy.Wildcard(c.Client.IPv4) && c.Outbound.Sockets.Take(s.Target, true) {
			continue // Envoy would reject the listener, because it, or its agent, already listens there
		}
		key := BindKey{bind, s.Target}
		if builders[key] == nil {
			k := gatewayKey{proxyContext: outboundContext(v, c), bind: bind, port: s.Target, dual: dual}
			builders[key] = &gatewayListenerBuilder{gatewayKey: k, view: v, seen: map[*kinds.Object]struct{}{}}
			order = append(order, builders[key])
		}
		m.addServer(builders[key], c.Client, s)
	}
	var out []*envoy.Resource
	quic := map[BindKey][]gatewayChain{}
	for _, o := range order {
		k := o.gatewayKey
		k.gateways = frozen.ListOf(o.of...)
		if len(o.chains) > 0 { // Envoy rejects a listener without chains
			k.chains = frozen.ListOf(o.chains...)
			out = append(out, m.gateways.Get(k))
		}
		for _, port := range slices.Sorted(maps.Keys(o.quic)) {
			if len(m.hooks.NetworkFilters(k.chain(feature.Gateway, true, port, protocols.HTTP3), k.selections)) > 0 {
				continue // over QUIC Envoy gives them no data, so they could deny nothing
			}
			key := BindKey{o.bind, port}
			if was := quic[key]; was != nil { // another TCP port of the workload has the same service port
				if !slices.Equal(was, o.quic[port]) {
					recordConflict(o.view, key)
				}
				continue
			}
			quic[key] = o.quic[port]
			k.quic, k.port, k.chains = true, port, frozen.ListOf(o.quic[port]...)
			out = append(out, m.gateways.Get(k))
		}
	}
	return out
}

// addServer adds the chains of a server, if it fits to the servers before it.
func (m *Listeners) addServer(o *gatewayListenerBuilder, c cohort.Client, s gateway.Server) {
	if _, seen := o.seen[s.Gateway]; !seen {
		o.seen[s.Gateway] = struct{}{}
		o.of = append(o.of, s.Gateway)
	}
	use := s.Use()
	if !o.servers.Fits(use) {
		recordConflict(o.view, BindKey{o.bind, o.port})
		return
	}
	chain := gatewayChain{use: use}
	switch use {
	case servers.PlainHTTP:
		if slices.ContainsFunc(o.chains, func(c gatewayChain) bool { return c.use == use }) {
			return // all servers of HTTP share one
		}
		chain.route, chain.protocol = s.Route(), protocols.Parse(s.GetPort().GetProtocol())
		o.add(chain, nil)
	case servers.SecureHTTP:
		chain.route, chain.protocol, chain.tls = s.Route(), protocols.HTTP, s.GetTls()
		if !o.add(chain, s.ServerNames()) {
			return
		}
		for _, port := range s.HTTP3 {
			if o.quic == nil {
				o.quic = map[uint32][]gatewayChain{}
			}
			chain = o.chains[len(o.chains)-1]
			chain.protocol = protocols.HTTP3
			o.quic[port] = append(o.quic[port], chain)
		}
	case servers.PlainTCP, servers.SecureTCP:
		if use == servers.SecureTCP {
			chain.tls = s.GetTls()
		}
		if routes := m.connections(o.view, c, s, false); len(routes) > 0 {
			chain.to = routes[0].to
			o.add(chain, s.ServerNames())
		}
	case servers.Passthrough:
		for _, r := range m.connections(o.view, c, s, true) {
			chain.to = r.to
			o.add(chain, r.servers)
		}
	case servers.AutoPassthrough:
		o.add(chain, sniClusters(o.view, c, s))
	}
}

// add adds a chain for its server names that no earlier chain has, and reports whether there are any. Envoy would
// reject two chains with one name, and it knows no pattern that ends within a label.
func (o *gatewayListenerBuilder) add(c gatewayChain, wanted []string) bool {
	wanted = lists.Filter(wanted, func(name string) bool { return !scope.IsPartial(name) })
	if c.use == servers.AutoPassthrough { // its chains also match the protocols of the mesh
		wanted = lists.Map(wanted, func(name string) string { return meshName + name })
	}
	free, taken := o.servers.Claim(c.use, wanted)
	if taken > 0 && c.use != servers.AutoPassthrough {
		recordConflict(o.view, BindKey{o.bind, o.port})
	}
	if len(free) == 0 {
		return false
	}
	if free[0] != servers.AnyName {
		c.servers = frozen.ListOf(lists.Map(free, func(name string) string { return strings.TrimPrefix(name, meshName) })...)
	}
	o.chains = append(o.chains, c)
	return true
}

// meshName is the prefix of server names of AutoPassthrough in gatewayListenerBuilder.servers.
const meshName = "mesh/"

// connectionRoute is the destination of connections with some server names.
type connectionRoute struct {
	servers []string
	to      tcpDestination
}

// connections returns the destinations of connections to a server by VirtualServices: by the first that has a route, or
// for unterminated TLS by all of them.
func (m *Listeners) connections(v *view.View, c cohort.Client, s gateway.Server, tls bool) []connectionRoute {
	var out []connectionRoute
	for _, vs := range s.VirtualServices(v, c) {
		options := feature.RouteOptions{Object: vs.Object, Port: s.GetPort().GetNumber(), Gateway: s.Name(), Namespace: c.Namespace,
			Domain: v.Domain()}
		for _, r := range m.hooks.ConnectionRoutes(options, tls) {
			if len(r.Destinations) > 0 {
				out = append(out, connectionRoute{r.Servers, destination(v, c, vs, s.GetPort().GetNumber(), r.Destinations)})
			}
		}
	}
	return out
}

// destination returns the destination of a route. A destination without a port means the only port of the service, or
// else the called port.
func destination(v *view.View, c cohort.Client, vs *scope.VirtualService, port uint32,
	list []feature.ConnectionDestination) tcpDestination {
	to := tcpDestination{statPrefix: vs.Object.Name + "." + vs.Object.Namespace}
	var clusters []weightedCluster
	for i, d := range list {
		host, number := d.Host, d.Port
		s := v.ScopeOf(c.Namespace, c.Sidecar).ResolveAlias(host)
		if s != nil {
			if host = s.Host; number == 0 && len(s.Ports) == 1 {
				number = s.Ports[0].Number
			}
		}
		number = cmp.Or(number, port)
		if s != nil && i == 0 { // a TCP proxy has one policy: the first destination's
			rule, _ := v.MergedRules(c, s).Rule(d.Subset)
			to.connection = connection(v, rule, number)
			to.resolved = resolvedPort(s, number)
		}
		clusters = append(clusters, weightedCluster{names.Cluster(names.Outbound, number, d.Subset, host), d.Weight})
	}
	if len(clusters) == 1 {
		to.statPrefix = clusters[0].name
	}
	to.clusters = frozen.ListOf(clusters...)
	return to
}

// connection returns the settings in force for connections to a port that are forwarded as bytes.
func connection(v *view.View, r traffic.Rule, port uint32) traffic.Connection {
	return r.Policy(port).WithDefaults(v.Mesh().GetDefaultTrafficPolicy()).Connection()
}

// sniClusters returns the names of the SNI-DNAT clusters of a server: of each service that its hosts cover, in any
// namespace.
func sniClusters(v *view.View, c cohort.Client, s gateway.Server) []string {
	var list []string
	var hosts names.HostIndex[struct{}]
	for _, h := range s.EachHost {
		hosts.Add(h, struct{}{})
	}
	for svc := range v.ScopeOf(c.Namespace, c.Sidecar).Services {
		if !gateway.PassesOn(svc.Service) || !hosts.Covers(svc.Host) {
			continue
		}
		for p := range svc.ImportedPorts {
			if p.Protocol == protocols.UDP {
				continue
			}
			for subset := range v.MergedRules(c, svc.Service).SubsetNames {
				list = append(list, names.SNICluster(p.Number, subset, svc.Host))
			}
		}
	}
	return list
}

func (b builder) buildGateway(k gatewayKey) *envoy.Resource {
	name := names.Listener(k.bind, k.port)
	if k.quic {
		name = names.QUICListener(k.bind, k.port)
	}
	l := &listenerv3.Listener{
		Name:                                 name,
		Address:                              envoy.Address(k.bind, k.port),
		AdditionalAddresses:                  additionalIPv6(k.dual, k.port),
		TrafficDirection:                     corev3.TrafficDirection_OUTBOUND,
		MaxConnectionsToAcceptPerSocketEvent: envoy.UInt32(1),
	}
	tls := false
	for c := range k.chains.All {
		tls = tls || c.use.TLS()
		l.FilterChains = append(l.FilterChains, b.gatewayChains(k, c, "outbound_"+name+";")...)
	}
	if k.tuning.OutboundExactBalance && !k.quic {
		balanceExactly(l)
	}
	if k.quic {
		overQUIC(l)
	} else if l.ListenerFilters = k.gatewayFilters(); tls {
		l.ListenerFilters = append(l.ListenerFilters, tlsInspector(nil))
	}
	return b.resource(k.proxyContext, feature.Gateway, l)
}

// overQUIC makes a listener accept QUIC, over UDP at the same addresses.
func overQUIC(l *listenerv3.Listener) {
	l.UdpListenerConfig = &listenerv3.UdpListenerConfig{QuicOptions: &listenerv3.QuicProtocolOptions{},
		DownstreamSocketConfig: &corev3.UdpSocketConfig{}}
	l.Address.GetSocketAddress().Protocol = corev3.SocketAddress_UDP
	for _, a := range l.AdditionalAddresses {
		a.Address.GetSocketAddress().Protocol = corev3.SocketAddress_UDP
	}
}

// gatewayChains makes the filter chains of a gatewayChain. Policies for unterminated connections are enforced at the
// destination, because only the server name is visible here.
func (b builder) gatewayChains(k gatewayKey, c gatewayChain, statPrefix string) []*listenerv3.FilterChain {
	if c.use == servers.AutoPassthrough {
		var out []*listenerv3.FilterChain
		for cluster := range c.servers.All {
			called, _ := names.ParseCluster(cluster)
			out = append(out, &listenerv3.FilterChain{
				FilterChainMatch: &listenerv3.FilterChainMatch{ServerNames: []string{cluster}, ApplicationProtocols: names.MeshALPN},
				Filters: b.tcpFilters(k.proxyContext, feature.Outbound, cluster, "", called.Port, protocols.Unsupported,
					traffic.Connection{}),
				TransportSocketConnectTimeout: k.handshakeTimeout(),
			})
		}
		return out
	}
	chain := &listenerv3.FilterChain{TransportSocketConnectTimeout: k.handshakeTimeout()}
	if !c.servers.Empty() {
		chain.FilterChainMatch = &listenerv3.FilterChainMatch{ServerNames: slices.Sorted(c.servers.All)}
	}
	if c.use.HTTP() {
		chain.Filters = b.httpChainFilters(k.proxyContext, feature.Gateway, statPrefix, c.route, nil, k.port, c.protocol)
	} else {
		to := c.to
		to.mutual = c.tls.GetMode() == networkingv1alpha3.ServerTLSSettings_ISTIO_MUTUAL
		chain.Filters = b.weightedTCPFilters(k.proxyContext, feature.Gateway, to, k.port, protocols.TCP)
	}
	switch {
	case k.quic:
		chain.TransportSocket = serverQUIC(k.proxyContext, c.tls)
	case c.use.TerminatesTLS():
		chain.TransportSocket = serverTLS(k.proxyContext, c.tls, !c.use.HTTP())
	}
	return []*listenerv3.FilterChain{chain}
}
