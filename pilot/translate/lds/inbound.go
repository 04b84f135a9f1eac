package lds

import (
	"slices"
	"sync"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	originaldstv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/original_dst/v3"
	originalsrcv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/original_src/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/api/protocols"
	"github.com/istiod-lite/istiod-lite/api/servers"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
	"github.com/istiod-lite/istiod-lite/pilot/scope/traffic"
	"github.com/istiod-lite/istiod-lite/pilot/translate/engine"
	"github.com/istiod-lite/istiod-lite/pilot/translate/inbound"
	"github.com/istiod-lite/istiod-lite/pilot/translate/rds"
	"github.com/istiod-lite/istiod-lite/pilot/translate/view"
)

// inboundKey is the whole input of a listener for a workload's incoming traffic: virtualInbound, or one that a
// Sidecar's ingress binds.
type inboundKey struct {
	proxyContext
	ports       frozen.List[inbound.Port]
	virtual     bool
	bind        string
	port        uint32
	transparent bool
	dual        bool
}

// Inbound generates the listeners for a sidecar's incoming traffic, as one partition.
func (m *Listeners) Inbound(v *view.View, c cohort.Inbound) engine.Generator[struct{}] {
	return engine.Single(func() []*envoy.Resource { return m.inboundListeners(v, c) }, engine.IfAll)
}

func (m *Listeners) inboundListeners(v *view.View, c cohort.Inbound) []*envoy.Resource {
	if !c.Sidecar {
		return nil
	}
	k := inboundKey{proxyContext: newProxyContext(v, c.Settings, c.Capabilities, c.Tags, c.Tuning, c.Selections)}
	var out []*envoy.Resource
	var captured []inbound.Port
	for _, p := range inbound.Ports(v, c) {
		if !p.BindsPort {
			captured = append(captured, p)
			continue
		}
		mesh := v.Mesh()
		captures := c.Interception != node.None &&
			(p.Target == uint32(mesh.GetProxyListenPort()) || p.Target == uint32(mesh.GetProxyInboundListenPort()))
		if p.Bind == envoy.Wildcard(c.IPv4) && (captures || c.Sockets.Take(p.Target, true)) {
			continue // the proxy listens there itself: Envoy would reject this listener, or the one for captured connections
		}
		k := k
		k.ports, k.bind, k.port = frozen.ListOf(p), p.Bind, p.Target
		out = append(out, m.inbound.Get(k))
	}
	if c.Interception != node.None {
		k.virtual, k.ports, k.port = true, frozen.ListOf(captured...), uint32(v.Mesh().GetProxyInboundListenPort())
		k.transparent, k.dual, k.bind = c.Interception == node.TPROXY, c.IPv4 && c.IPv6, envoy.Wildcard(c.IPv4)
		out = append(out, m.inbound.Get(k))
	}
	return out
}

// tproxyMark marks connections to the application that have their client's address. By the rules for TPROXY, responses
// come back to the proxy.
const tproxyMark = 1337

// buildInbound makes a listener for incoming traffic.
func (b builder) buildInbound(k inboundKey) *envoy.Resource {
	l := &listenerv3.Listener{
		Name:                                 names.Listener(k.bind, k.port),
		Address:                              envoy.Address(k.bind, k.port),
		TrafficDirection:                     corev3.TrafficDirection_INBOUND,
		ContinueOnListenerFiltersTimeout:     true,
		ListenerFiltersTimeout:               k.mesh.GetProtocolDetectionTimeout(),
		MaxConnectionsToAcceptPerSocketEvent: envoy.UInt32(1),
		AdditionalAddresses:                  additionalIPv6(k.dual, k.port),
	}
	if k.transparent {
		l.Transparent = envoy.Bool(true)
	}
	if k.tuning.InboundExactBalance {
		balanceExactly(l)
	}
	var sets []chainSet
	if k.virtual {
		l.Name = names.VirtualInbound
		l.FilterChains = append(l.FilterChains, &listenerv3.FilterChain{
			Name:             names.VirtualInboundBlackhole,
			FilterChainMatch: &listenerv3.FilterChainMatch{DestinationPort: envoy.UInt32(k.port)},
			Filters:          b.refusingFilters(k.proxyContext, feature.Inbound),
		})
		sets = append(sets, k.catchAll(b, 0))
		targets := map[uint32]bool{}
		for p := range k.ports.All {
			targets[p.Target] = true
		}
		for _, port := range b.Ports(k.selections) {
			if !targets[port] {
				sets = append(sets, k.catchAll(b, port))
			}
		}
	}
	for p := range k.ports.All {
		sets = append(sets, k.servicePort(b, p))
	}
	for i := range sets {
		l.FilterChains = append(l.FilterChains, sets[i].chains...)
	}
	if k.virtual {
		l.ListenerFilters = append(l.ListenerFilters, listenerFilter("envoy.filters.listener.original_dst", &originaldstv3.OriginalDst{}, nil))
		if k.transparent {
			l.ListenerFilters = append(l.ListenerFilters,
				listenerFilter("envoy.filters.listener.original_src", &originalsrcv3.OriginalSrc{Mark: tproxyMark}, nil))
		}
	}
	if disabled, needed := k.inspectorPorts(sets, chainSet.tls); needed {
		l.ListenerFilters = append(l.ListenerFilters, tlsInspector(disabled))
	}
	if disabled, needed := k.inspectorPorts(sets, chainSet.sniffed); needed {
		l.ListenerFilters = append(l.ListenerFilters, httpInspector(disabled))
	}
	return b.resource(k.proxyContext, feature.Inbound, l)
}

// inspectorPorts returns the ports on which an inspector is disabled, and reports whether it is needed at all.
func (k inboundKey) inspectorPorts(sets []chainSet, needs func(chainSet) bool) (*listenerv3.ListenerFilterChainMatchPredicate, bool) {
	var with, without []uint32
	any, everywhere := false, false
	for _, s := range sets {
		if needs(s) {
			any = true
			everywhere = everywhere || s.port == 0
			with = append(with, s.port)
		} else if s.port != 0 {
			without = append(without, s.port)
		}
	}
	if !everywhere && any {
		return &listenerv3.ListenerFilterChainMatchPredicate{
			Rule: &listenerv3.ListenerFilterChainMatchPredicate_NotMatch{NotMatch: onPorts(with)},
		}, any
	}
	without = append(without, k.port)
	slices.Sort(without)
	return onPorts(without), any
}

func onPorts(ports []uint32) *listenerv3.ListenerFilterChainMatchPredicate {
	var list []*listenerv3.ListenerFilterChainMatchPredicate
	for _, p := range ports {
		list = append(list, &listenerv3.ListenerFilterChainMatchPredicate{
			Rule: &listenerv3.ListenerFilterChainMatchPredicate_DestinationPortRange{
				DestinationPortRange: &typev3.Int32Range{Start: int32(p), End: int32(p) + 1},
			},
		})
	}
	if len(list) == 1 {
		return list[0]
	}
	return &listenerv3.ListenerFilterChainMatchPredicate{Rule: &listenerv3.ListenerFilterChainMatchPredicate_OrMatch{
		OrMatch: &listenerv3.ListenerFilterChainMatchPredicate_MatchSet{Rules: list},
	}}
}

func listenerFilter(name string, config proto.Message, disabled *listenerv3.ListenerFilterChainMatchPredicate) *listenerv3.ListenerFilter {
	return &listenerv3.ListenerFilter{Name: name, FilterDisabled: disabled,
		ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: envoy.Any(config)}}
}

// chainSet is the filter chains of one port. Port 0 means all others.
type chainSet struct {
	port   uint32
	chains []*listenerv3.FilterChain
}

func (s chainSet) tls() bool {
	return slices.ContainsFunc(s.chains, func(c *listenerv3.FilterChain) bool { return c.FilterChainMatch.TransportProtocol == tlsWire })
}

func (s chainSet) sniffed() bool {
	return slices.ContainsFunc(s.chains, func(c *listenerv3.FilterChain) bool {
		return c.FilterChainMatch.TransportProtocol == rawBuffer && len(c.FilterChainMatch.ApplicationProtocols) > 0
	})
}

// catchAll makes the chains for ports without a service: for all of them if port is 0, else for one port that has a
// policy of its own.
func (k inboundKey) catchAll(b builder, port uint32) chainSet {
	return k.chains(b, port, protocols.Unsupported, k.mode(b, port), names.VirtualInboundCatchallHTTP, names.VirtualInbound,
		func() []*listenerv3.Filter {
			routes := inboundRoute(names.InboundPassthroughCluster, names.InboundPassthroughCluster, "", 0, k.retries(false))
			return b.httpChainFilters(k.proxyContext, feature.Inbound, names.InboundPassthroughCluster+";", "", routes, 0, protocols.Unsupported)
		},
		func() []*listenerv3.Filter {
			return b.tcpFilters(k.proxyContext, feature.Inbound, names.InboundPassthroughCluster, "", 0, protocols.Unsupported, traffic.Connection{})
		})
}

// servicePort makes the chains of one workload port.
func (k inboundKey) servicePort(b builder, p inbound.Port) chainSet {
	name, cluster := names.Listener(p.Bind, p.Target), names.Cluster(names.Inbound, p.Target, "", "")
	grpc := p.Protocol == protocols.GRPC || p.Protocol == protocols.GRPCWeb
	connection := traffic.Connection{MaxDuration: p.Rule.Policy(p.Port).Connection().MaxDuration}
	mode := k.mode(b, p.Target)
	http := func() []*listenerv3.Filter {
		return b.httpChainFilters(k.proxyContext, feature.Inbound, "inbound_"+name+";", "",
			inboundRoute(cluster, cluster, p.Host, p.Port, k.retries(grpc)), p.Target, p.Protocol)
	}
	tcp := func() []*listenerv3.Filter {
		return b.tcpFilters(k.proxyContext, feature.Inbound, cluster, k.statName(p), p.Port, p.Protocol, connection)
	}
	var s chainSet
	switch {
	case mode == feature.Disable && terminates(p.TLS) && !p.Protocol.Sniffed():
		s = k.ownTLS(p, name, http, tcp)
	case p.TLS != nil: // not supported beside the mesh's own TLS; without it only peers of the mesh may connect
		s = k.chains(b, p.Target, p.Protocol, feature.Strict, name, name, http, tcp)
	default:
		s = k.chains(b, p.Target, p.Protocol, mode, name, name, http, tcp)
	}
	if p.Ingress != nil {
		for _, c := range s.chains {
			c.Metadata = envoy.IstioMetadata(map[string]*structpb.Value{"config": envoy.Text(p.Ingress.Path())})
		}
	}
	return s
}

// terminates reports whether a sidecar terminates TLS by the settings of an ingress listener: they name a certificate
// and require nothing that proxies cannot enforce.
func terminates(t *networkingv1alpha3.ServerTLSSettings) bool {
	if t.GetServerCertificate() == "" || t.GetPrivateKey() == "" || servers.Unenforced(t) != "" {
		return false
	}
	switch t.GetMode() {
	case networkingv1alpha3.ServerTLSSettings_SIMPLE:
		return true
	case networkingv1alpha3.ServerTLSSettings_MUTUAL, networkingv1alpha3.ServerTLSSettings_OPTIONAL_MUTUAL:
		return t.GetCaCertificates() != ""
	}
	return false
}

// ownTLS makes the chain of an ingress listener that terminates TLS by its own certificates, and accepts nothing else.
func (k inboundKey) ownTLS(p inbound.Port, name string, http, tcp func() []*listenerv3.Filter) chainSet {
	isHTTP := p.Protocol.IsHTTP() || p.Protocol == protocols.HTTPS
	c := &listenerv3.FilterChain{
		Name:             name,
		FilterChainMatch: &listenerv3.FilterChainMatch{TransportProtocol: tlsWire, DestinationPort: envoy.UInt32(p.Target)},
		TransportSocket:  serverTLS(k.proxyContext, p.TLS, !isHTTP),
	}
	if isHTTP {
		c.Filters = http()
	} else {
		c.Filters = tcp()
	}
	return chainSet{port: p.Target, chains: []*listenerv3.FilterChain{c}}
}

// statName returns the name of a port's connections in statistics, by the first service that has it. If it is empty,
// the cluster's name is used.
func (k inboundKey) statName(p inbound.Port) string {
	for s := range p.Services.All {
		if pattern := k.mesh.GetInboundClusterStatName(); pattern != "" {
			return view.StatName(pattern, s, p.Port, p.Target, "")
		}
		break
	}
	return ""
}

// retries returns the retry policy of a port, or nil. gRPC requests are not retried: a stream may have been read in
// part.
func (k inboundKey) retries(grpc bool) *routev3.RetryPolicy {
	if grpc {
		return nil
	}
	return feature.InboundRetries(k.mesh.GetDefaultInboundHttpRetryPolicy())
}

// mode returns which connections a port accepts.
func (k inboundKey) mode(b builder, port uint32) feature.Mode {
	return b.Mode(b.TransportSelection(k.selections), port)
}

// chains makes the chains that a port needs for its protocol and mTLS mode.
func (k inboundKey) chains(b builder, port uint32, protocol protocols.Protocol, mode feature.Mode, httpName, tcpName string,
	http func() []*listenerv3.Filter, tcp func() []*listenerv3.Filter,
) chainSet {
	set := chainSet{port: port}
	http, tcp = sync.OnceValue(http), sync.OnceValue(tcp) // chains that differ only in their match share their filters
	add := func(isHTTP, terminate bool, transport string, alpn ...string) {
		c := &listenerv3.FilterChain{Name: tcpName, FilterChainMatch: &listenerv3.FilterChainMatch{TransportProtocol: transport,
			ApplicationProtocols: alpn}}
		if port != 0 {
			c.FilterChainMatch.DestinationPort = envoy.UInt32(port)
		}
		if isHTTP {
			c.Name, c.Filters = httpName, http()
		} else {
			c.Filters = tcp()
		}
		if terminate {
			c.TransportSocket = b.Downstream(feature.Downstream{Mesh: k.mesh, HTTP: isHTTP,
				PeerExchange: k.capabilities.Has(node.NetworkMetadataExchange), Files: k.tuning.ServerFiles})
		}
		set.chains = append(set.chains, c)
	}
	plain := plainHTTP(k.tuning.HTTP10).ApplicationProtocols
	switch {
	case protocol.IsHTTP() && mode == feature.Permissive:
		add(true, true, tlsWire, names.MeshALPN...)
		add(true, false, rawBuffer)
	case protocol.IsHTTP():
		byMode(mode, func() { add(true, true, tlsWire) }, func() { add(true, false, rawBuffer) })
	case protocol.Sniffed() && mode == feature.Permissive:
		add(true, true, tlsWire, names.MeshHTTPALPN...)
		add(true, false, rawBuffer, plain...)
		add(false, true, tlsWire, names.MeshTCPALPN...)
		add(false, false, rawBuffer)
		add(false, false, tlsWire)
	case protocol.Sniffed():
		byMode(mode, func() {
			add(true, true, tlsWire, names.MeshHTTPALPN...)
			add(false, true, tlsWire)
		}, func() {
			add(true, false, rawBuffer, plain...)
			add(false, false, rawBuffer)
		})
	case mode == feature.Permissive:
		add(false, true, tlsWire, names.MeshALPN...)
		add(false, false, tlsWire)
		add(false, false, rawBuffer)
	default:
		byMode(mode, func() { add(false, true, tlsWire) }, func() { add(false, false, rawBuffer) })
	}
	return set
}

func byMode(mode feature.Mode, strict, disable func()) {
	if mode == feature.Strict {
		strict()
	} else {
		disable()
	}
}

// inboundRoute returns routes that send every request of a chain to one cluster.
func inboundRoute(name, cluster, host string, port uint32, retry *routev3.RetryPolicy) *routev3.RouteConfiguration {
	return &routev3.RouteConfiguration{
		Name:             name,
		ValidateClusters: envoy.Bool(false),
		VirtualHosts: []*routev3.VirtualHost{{
			Name: names.InboundVirtualHost(port), Domains: []string{"*"}, Routes: []*routev3.Route{rds.WorkloadRoute(cluster, host, port, retry)},
		}},
	}
}
