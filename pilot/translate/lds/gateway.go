package lds

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
	"github.com/istiod-lite/istiod-lite/pilot/translate/engine"
	"github.com/istiod-lite/istiod-lite/pilot/translate/gateway"
	"github.com/istiod-lite/istiod-lite/pilot/translate/view"
	"github.com/istiod-lite/istiod-lite/registry"
)

// gatewayKey is all that a gateway's listener depends on.
type gatewayKey struct {
	proxyContext
	bind  string
	port  uint32
	route string              // the route configuration of the HTTP chain; empty without one
	http  registry.Protocol   // the first HTTP server's
	sni   frozen.List[string] // SNI-DNAT clusters, each selected by its name as the server name
	dual  bool
}

// gatewayListenerBuilder collects the servers that share a bind key.
type gatewayListenerBuilder struct {
	gatewayKey
	sni       []string
	seen      map[string]struct{} // in sni
	plaintext bool                // the first server takes HTTP: TLS cannot share the bind key
}

// Gateway generates the listeners of a gateway, as one partition: none while no Gateway selects it.
func (m *Listeners) Gateway(v *view.View, c cohort.Inputs) engine.Generator[struct{}] {
	return engine.Single(func() []*envoy.Resource { return m.gatewayListeners(v, c) }, engine.IfAny)
}

func (m *Listeners) gatewayListeners(v *view.View, c cohort.Inputs) []*envoy.Resource {
	builders, order := map[BindKey]*gatewayListenerBuilder{}, []*gatewayListenerBuilder{}
	open := func(s gateway.Server, plain bool) *gatewayListenerBuilder {
		bind, dual := s.Bind, false
		if bind == "" {
			bind, dual = envoy.Wildcard(c.Scope.IPv4), c.Scope.IPv4 && c.Scope.IPv6
		}
		key := BindKey{bind, s.Target}
		if builders[key] == nil {
			k := gatewayKey{proxyContext: newProxyContext(v, c.Scope.Capabilities, c.Outbound.Tags, c.Outbound.HTTP10, c.Outbound.Selections), bind: bind, port: s.Target, dual: dual}
			k.internalRanges = internalRanges(v)
			builders[key] = &gatewayListenerBuilder{gatewayKey: k, seen: map[string]struct{}{}, plaintext: plain}
			order = append(order, builders[key])
		}
		return builders[key]
	}
	for _, s := range v.Gateways.Servers(c.Scope) {
		if c.Outbound.Unprivileged && s.Target < 1024 {
			continue // Envoy could not bind it, and would reject the listener
		}
		switch p := registry.ParseProtocolOr(s.GetPort().GetProtocol(), registry.TCP); {
		case p.IsHTTP():
			if o := open(s, true); o.route == "" {
				o.route, o.http = s.Route(), p
			}
		case gateway.AutoPassthrough(s.Server):
			o := open(s, false)
			if o.plaintext {
				recordConflict(v, BindKey{o.bind, o.port})
				continue
			}
			for _, name := range sniClusters(v, c.Scope, s) {
				if _, ok := o.seen[name]; !ok {
					o.seen[name] = struct{}{}
					o.sni = append(o.sni, name)
				}
			}
		}
	}
	var out []*envoy.Resource
	for _, o := range order {
		if k := o.gatewayKey; k.route != "" || len(o.sni) > 0 { // Envoy refuses a listener without chains
			k.sni = frozen.ListOf(o.sni...)
			out = append(out, m.gateways.Get(k))
		}
	}
	return out
}

// sniClusters returns the names of the SNI-DNAT clusters of a server: of each service that its hosts cover, in any
// namespace.
func sniClusters(v *view.View, c cohort.Scope, s gateway.Server) []string {
	var list []string
	for svc := range v.ScopeOf(c.Namespace, c.Sidecar).Services {
		if svc.MeshExternal || svc.Resolution == registry.Alias || !s.Covers(svc.Host) {
			continue
		}
		for p := range svc.ImportedPorts {
			if p.Protocol == registry.UDP {
				continue
			}
			for subset := range v.MergedRules(c, svc.Service).SubsetNames {
				list = append(list, names.SNICluster(p.Number, subset, svc.Host))
			}
		}
	}
	return list
}

// internalRanges returns the ranges of addresses inside the mesh, whose forwarding headers are trusted.
func internalRanges(v *view.View) frozen.List[string] {
	if v.Networks() == nil {
		return frozen.List[string]{}
	}
	return v.Networks().Ranges
}

func (b builder) buildGateway(k gatewayKey) *envoy.Resource {
	name := names.Listener(k.bind, k.port)
	l := &listenerv3.Listener{
		Name:                                 name,
		Address:                              envoy.Address(k.bind, k.port),
		AdditionalAddresses:                  additionalIPv6(k.dual, k.port),
		TrafficDirection:                     corev3.TrafficDirection_OUTBOUND,
		MaxConnectionsToAcceptPerSocketEvent: envoy.UInt32(1),
	}
	// Policies are enforced at the destination: all that is visible here is the server name.
	for cluster := range k.sni.All {
		l.FilterChains = append(l.FilterChains, &listenerv3.FilterChain{
			FilterChainMatch:              &listenerv3.FilterChainMatch{ServerNames: []string{cluster}, ApplicationProtocols: names.MeshALPN},
			Filters:                       b.tcpFilters(k.proxyContext, feature.Outbound, cluster, registry.Unsupported, 0),
			TransportSocketConnectTimeout: envoy.Duration(transportSocketTimeout),
		})
	}
	if !k.sni.Empty() {
		l.ListenerFilters = []*listenerv3.ListenerFilter{tlsInspector(nil)}
	}
	if k.route != "" {
		l.FilterChains = append(l.FilterChains, &listenerv3.FilterChain{
			Filters:                       b.httpFilters(k.proxyContext, feature.Gateway, "outbound_"+name+";", k.route, nil, k.http),
			TransportSocketConnectTimeout: envoy.Duration(transportSocketTimeout),
		})
	}
	return envoy.NewResource(name, l)
}
