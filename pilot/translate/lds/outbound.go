package lds

import (
	"net/netip"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	httpinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/http_inspector/v3"
	tlsinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/api/protocols"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
)

// outboundKey is the whole input of a listener for a sidecar's outgoing traffic.
type outboundKey struct {
	proxyContext
	bind      string
	port      uint32
	bindsPort bool               // whether it binds the port; otherwise virtualOutbound passes connections to it
	route     string             // route configuration for HTTP, else empty
	http      protocols.Protocol // GRPCWeb if its filter is needed
	matchHTTP bool               // whether the chain for HTTP matches the sniffed protocol
	chains    frozen.List[tcpChain]
	dual      bool   // whether it binds the wildcard addresses of both families
	fallback  string // cluster of the default chain; empty without one
}

// tcpChain is a chain that forwards bytes.
type tcpChain struct {
	to       tcpDestination
	servers  frozen.List[string]       // TLS server names; empty for any
	prefixes frozen.List[netip.Prefix] // ranges of called addresses; empty for any
	protocol protocols.Protocol
	config   string // path of the object with the route; empty for the service itself
}

// buildOutbound makes one listener for outgoing traffic.
func (b builder) buildOutbound(k outboundKey) *envoy.Resource {
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
	if k.tuning.OutboundExactBalance {
		balanceExactly(l)
	}
	tls := false
	for c := range k.chains.All {
		chain := &listenerv3.FilterChain{
			Filters:                       b.weightedTCPFilters(k.proxyContext, feature.Outbound, c.to, k.port, c.protocol),
			TransportSocketConnectTimeout: k.handshakeTimeout(),
		}
		if !c.matchesAll() {
			chain.FilterChainMatch = &listenerv3.FilterChainMatch{}
		}
		if !c.servers.Empty() {
			tls = true
			chain.FilterChainMatch.ServerNames = slices.Collect(c.servers.All)
		}
		for p := range c.prefixes.All {
			chain.FilterChainMatch.PrefixRanges = append(chain.FilterChainMatch.PrefixRanges,
				&corev3.CidrRange{AddressPrefix: p.Addr().String(), PrefixLen: envoy.UInt32(uint32(p.Bits()))})
		}
		if c.config != "" {
			chain.Metadata = envoy.IstioMetadata(map[string]*structpb.Value{"config": envoy.Text(c.config)})
		}
		l.FilterChains = append(l.FilterChains, chain)
	}
	if k.route != "" {
		chain := &listenerv3.FilterChain{
			Filters: b.httpChainFilters(k.proxyContext, feature.Outbound, "outbound_"+l.Name+";", k.route, nil, k.port,
				k.http),
			TransportSocketConnectTimeout: k.handshakeTimeout(),
		}
		if k.matchHTTP {
			chain.FilterChainMatch = plainHTTP(k.tuning.HTTP10)
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
			Name: names.PassthroughFilterChain, FilterChainMatch: &listenerv3.FilterChainMatch{},
			Filters: b.fallbackFilters(k.proxyContext, k.fallback),
		}
	} else if len(l.FilterChains) > 1 {
		if i := slices.IndexFunc(l.FilterChains, func(c *listenerv3.FilterChain) bool { return c.FilterChainMatch == nil }); i >= 0 {
			l.DefaultFilterChain = l.FilterChains[i]
			l.FilterChains = slices.Delete(l.FilterChains, i, i+1)
		}
	}
	return b.resource(k.proxyContext, feature.Outbound, l)
}

// plainHTTP matches unencrypted HTTP, as http_inspector detects it.
func plainHTTP(http10 bool) *listenerv3.FilterChainMatch {
	m := &listenerv3.FilterChainMatch{TransportProtocol: rawBuffer, ApplicationProtocols: []string{"http/1.1", "h2c"}}
	if http10 {
		m.ApplicationProtocols = []string{"http/1.0", "http/1.1", "h2c"}
	}
	return m
}

// Transport protocols as tls_inspector detects them.
const (
	rawBuffer = "raw_buffer"
	tlsWire   = "tls"
)

func tlsInspector(disabled *listenerv3.ListenerFilterChainMatchPredicate) *listenerv3.ListenerFilter {
	return listenerFilter("envoy.filters.listener.tls_inspector",
		&tlsinspectorv3.TlsInspector{InitialReadBufferSize: envoy.UInt32(512)}, disabled)
}

func httpInspector(disabled *listenerv3.ListenerFilterChainMatchPredicate) *listenerv3.ListenerFilter {
	return listenerFilter("envoy.filters.listener.http_inspector", &httpinspectorv3.HttpInspector{}, disabled)
}

// virtualOutboundKey is the whole input of virtualOutbound, the listener to which outgoing connections are redirected.
type virtualOutboundKey struct {
	proxyContext
	bind        string
	transparent bool
	dual        bool
	fallback    string
	http        string // cluster for requests, if it differs from the one for connections
}

func (b builder) buildVirtualOutbound(k virtualOutboundKey) *envoy.Resource {
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
				Filters:          b.refusingFilters(k.proxyContext, feature.Outbound),
			},
			{Name: names.VirtualOutboundCatchall, Filters: b.fallbackFilters(k.proxyContext, k.fallback)},
		},
	}
	if k.http != "" {
		l.FilterChains = slices.Insert(l.FilterChains, 1, b.requestChain(k))
		l.ListenerFilters = append(l.ListenerFilters, httpInspector(nil))
		if t := k.mesh.GetProtocolDetectionTimeout(); t.AsDuration() > 0 {
			l.ListenerFiltersTimeout, l.ContinueOnListenerFiltersTimeout = t, true
		}
	}
	l.AdditionalAddresses = additionalIPv6(k.dual, port)
	if k.transparent {
		l.Transparent = envoy.Bool(true)
	}
	return b.resource(k.proxyContext, feature.Outbound, l)
}

// additionalIPv6 returns the second address of a listener that binds the wildcard addresses of both families.
func additionalIPv6(dual bool, port uint32) []*listenerv3.AdditionalAddress {
	if !dual {
		return nil
	}
	return []*listenerv3.AdditionalAddress{{Address: envoy.Address("::", port)}}
}

// ownHeadlessListeners returns the names of the listeners of headless services for a pod's own address, which the pod
// itself is not sent.
func (m *Listeners) ownHeadlessListeners(c cohort.Key, set *envoy.Set) *envoy.Names {
	var own []string
	if c.Address != "" && c.Listeners.Value().Outbound.Interception != node.None {
		for t := range c.Inbound.Value().Targets.All {
			if name := names.Listener(c.Address, t.Port); scope.ReachedPerEndpoint(t.Service) && set.Get(name) != nil {
				own = append(own, name)
			}
		}
	}
	return m.omitted.Intern(own)
}
