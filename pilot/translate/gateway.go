package translate

import (
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/registry"
)

// server is one server of one Gateway at one port of the workload.
type server struct {
	*networkingv1alpha3.Server
	gateway *kinds.Object
	target  uint32 // the port that is bound
	bind    string
}

// servers lists the HTTP servers of a gateway by the precedence of their Gateways. Two that want one place share its listener and its routes.
func (v *view) servers(c cohort.Scope) []server {
	var all []server
	for o := range c.Gateways.All {
		for _, s := range o.Spec.(*networkingv1.Gateway).Servers {
			if !portProtocol(s.GetPort().GetProtocol(), registry.TCP).IsHTTP() {
				continue
			}
			for _, target := range targets(c, s.GetPort().GetNumber()) {
				all = append(all, server{s, o, target, s.Bind})
			}
		}
	}
	return all
}

// targets gives the workload's ports behind a port of the gateway's service; a port that no service has is bound as it is.
func targets(c cohort.Scope, port uint32) []uint32 {
	var list []uint32
	for t := range c.Targets.All {
		if t.Port == port && !slices.Contains(list, t.Target) {
			list = append(list, t.Target)
		}
	}
	if len(list) == 0 {
		list = append(list, port)
	}
	return list
}

func (s server) route() string { return names.GatewayRoute(s.target, s.bind) }

// reach takes the hosts of the server apart: the namespace whose VirtualServices may use it ("*" for any), and the host.
func (s server) reach(yield func(namespace, host string) bool) {
	for _, h := range s.Hosts {
		ns, host, ok := strings.Cut(h, "/")
		if !ok {
			ns, host = "*", h
		}
		if ns == "." {
			ns = s.gateway.Namespace
		}
		if !yield(ns, strings.ToLower(host)) {
			return
		}
	}
}

// gatewayKey is all that a gateway's listener depends on.
type gatewayKey struct {
	surroundings
	bind  string
	port  uint32
	route string
	http  registry.Protocol // the first server's
	dual  bool
}

// gatewayListeners makes the listeners of a gateway: none while no Gateway selects it.
func (v *view) gatewayListeners(c cohort.Proxy) *envoy.Set {
	var out []*envoy.Resource
	for _, s := range v.servers(c.Scope) {
		k := gatewayKey{surroundings: v.surroundings(c.Scope.Capabilities, c.Outbound.Tags, c.Outbound.HTTP10), bind: s.bind, port: s.target, route: s.route(), http: portProtocol(s.Port.Protocol, registry.HTTP)}
		k.guarded = c.Outbound.Guarded
		if k.bind == "" {
			k.bind, k.dual = wildcard(c.Scope.IPv4), c.Scope.IPv4 && c.Scope.IPv6
		}
		if c.Outbound.Unprivileged && k.port < 1024 {
			continue // it could not bind it, and Envoy would reject the listener
		}
		out = append(out, v.t.gateways.Get(k))
	}
	return envoy.NewSet(out)
}

func buildGateway(k gatewayKey) *envoy.Resource {
	name := names.Listener(k.bind, k.port)
	return envoy.NewResource(name, &listenerv3.Listener{
		Name:                                 name,
		Address:                              envoy.Address(k.bind, k.port),
		AdditionalAddresses:                  alsoIPv6(k.dual, k.port),
		TrafficDirection:                     corev3.TrafficDirection_OUTBOUND,
		MaxConnectionsToAcceptPerSocketEvent: envoy.UInt32(1),
		FilterChains: []*listenerv3.FilterChain{{
			Filters:                       []*listenerv3.Filter{k.connectionManager(ingress, "outbound_"+name+";", k.route, nil, k.http)},
			TransportSocketConnectTimeout: envoy.Duration(transportSocketTimeout),
		}},
	})
}
