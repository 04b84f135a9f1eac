package translate

import (
	"slices"
	"strings"
	"sync"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
	"github.com/istiod-lite/istiod-lite/registry"
)

// server is one server of one Gateway on one port of the workload.
type server struct {
	*networkingv1alpha3.Server
	gateway *kinds.Object
	target  uint32 // the port that is bound
	bind    string
	hosts   []string // normalised: "host" for all namespaces, else "namespace/host"
}

// servers returns the servers of a gateway. The caller must not change the slice.
func (v *view) servers(c cohort.Scope) []server { return v.serverTables.of(c).all }

// serversOf returns the servers that share a route configuration.
func (v *view) serversOf(c cohort.Scope, route string) []server {
	return v.serverTables.of(c).byRoute[route]
}

// serverTable is the servers of a gateway.
type serverTable struct {
	all     []server
	byRoute map[string][]server
}

// serverTables caches a table for each set of Gateways and ports: every route configuration needs its servers. Safe for
// concurrent use.
type serverTables struct {
	mu   sync.Mutex
	made map[serverTableKey]*serverTable
}

type serverTableKey struct {
	gateways frozen.List[*kinds.Object]
	targets  frozen.List[cohort.Target]
}

func (s *serverTables) of(c cohort.Scope) *serverTable {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := serverTableKey{c.Gateways, c.Targets}
	if s.made[k] == nil {
		if s.made == nil {
			s.made = map[serverTableKey]*serverTable{}
		}
		t := &serverTable{all: servers(c), byRoute: map[string][]server{}}
		for _, s := range t.all {
			t.byRoute[s.route()] = append(t.byRoute[s.route()], s)
		}
		s.made[k] = t
	}
	return s.made[k]
}

// servers lists the servers of a gateway by the precedence of their Gateways. Servers with one bind key share its
// listener and its routes. Of two servers with TLS settings that want one host at one bind key, the second is left out.
func servers(c cohort.Scope) []server {
	var all []server
	type boundHost struct {
		bindKey
		host string
	}
	var seen map[boundHost]struct{}
	byPort := targetsByPort(c)
	for o := range c.Gateways.All {
		for _, s := range o.Spec.(*networkingv1.Gateway).Servers {
			hosts := serverHosts(s, o.Namespace)
			port := s.GetPort().GetNumber()
			targets := byPort[port]
			if targets == nil {
				targets = []uint32{port} // a port without a service is bound itself
			}
			for _, target := range targets {
				key := bindKey{s.Bind, target}
				if s.Tls != nil {
					if slices.ContainsFunc(hosts, func(h string) bool { _, ok := seen[boundHost{key, h}]; return ok }) {
						continue
					}
					if seen == nil {
						seen = map[boundHost]struct{}{}
					}
					for _, h := range hosts {
						seen[boundHost{key, h}] = struct{}{}
					}
				}
				all = append(all, server{s, o, target, s.Bind, hosts})
			}
		}
	}
	return all
}

// serverHosts returns the hosts of a server of a Gateway in a namespace. A server for any host of any namespace has
// just that one.
func serverHosts(s *networkingv1alpha3.Server, namespace string) []string {
	list := make([]string, 0, len(s.Hosts))
	for _, h := range s.Hosts {
		h = strings.ToLower(h)
		switch ns, host, ok := strings.Cut(h, "/"); {
		case ok && ns == "*" && host == "*":
			return []string{"*"}
		case ok && ns == "*":
			h = host
		case ok && ns == ".":
			h = namespace + "/" + host
		}
		list = append(list, h)
	}
	return list
}

// targetsByPort returns the workload's ports behind each port of the gateway's services.
func targetsByPort(c cohort.Scope) map[uint32][]uint32 {
	all := map[uint32][]uint32{}
	for t := range c.Targets.All {
		if !slices.Contains(all[t.Port], t.TargetPort) {
			all[t.Port] = append(all[t.Port], t.TargetPort)
		}
	}
	return all
}

func (s server) route() string { return names.GatewayRoute(s.target, s.bind) }

// eachHost yields each host of the server, and the namespace whose VirtualServices may use it, "*" for any.
func (s server) eachHost(yield func(namespace, host string) bool) {
	for _, h := range s.hosts {
		ns, host, ok := strings.Cut(h, "/")
		if !ok {
			ns, host = "*", h
		}
		if !yield(ns, host) {
			return
		}
	}
}

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

// autoPassthrough reports whether a server forwards mTLS unterminated to the cluster that its server name selects.
func autoPassthrough(s *networkingv1alpha3.Server) bool {
	return s.GetTls().GetMode() == networkingv1alpha3.ServerTLSSettings_AUTO_PASSTHROUGH && !portProtocol(s.GetPort().GetProtocol(), registry.TCP).IsHTTP()
}

// hasAutoPassthrough reports whether a gateway has such a server: then it has SNI-DNAT clusters.
func hasAutoPassthrough(c cohort.Scope) bool {
	for o := range c.Gateways.All {
		if slices.ContainsFunc(o.Spec.(*networkingv1.Gateway).Servers, autoPassthrough) {
			return true
		}
	}
	return false
}

// gatewayListenerBuilder collects the servers that share a bind key.
type gatewayListenerBuilder struct {
	gatewayKey
	sni       []string
	seen      map[string]struct{} // in sni
	plaintext bool                // the first server takes HTTP: TLS cannot share the bind key
}

// gatewayListeners makes the listeners of a gateway: none while no Gateway selects it.
func (v *view) gatewayListeners(c cohort.Inputs) []*envoy.Resource {
	builders, order := map[bindKey]*gatewayListenerBuilder{}, []*gatewayListenerBuilder{}
	open := func(s server, plain bool) *gatewayListenerBuilder {
		bind, dual := s.bind, false
		if bind == "" {
			bind, dual = wildcard(c.Scope.IPv4), c.Scope.IPv4 && c.Scope.IPv6
		}
		key := bindKey{bind, s.target}
		if builders[key] == nil {
			k := gatewayKey{proxyContext: v.proxyContext(c.Scope.Capabilities, c.Outbound.Tags, c.Outbound.HTTP10, c.Outbound.Selections), bind: bind, port: s.target, dual: dual}
			k.internalRanges = v.internalRanges()
			builders[key] = &gatewayListenerBuilder{gatewayKey: k, seen: map[string]struct{}{}, plaintext: plain}
			order = append(order, builders[key])
		}
		return builders[key]
	}
	for _, s := range v.servers(c.Scope) {
		if c.Outbound.Unprivileged && s.target < 1024 {
			continue // Envoy could not bind it, and would reject the listener
		}
		switch p := portProtocol(s.GetPort().GetProtocol(), registry.TCP); {
		case p.IsHTTP():
			if o := open(s, true); o.route == "" {
				o.route, o.http = s.route(), p
			}
		case autoPassthrough(s.Server):
			o := open(s, false)
			if o.plaintext {
				v.recordListenerConflict(bindKey{o.bind, o.port})
				continue
			}
			for _, name := range v.sniClusters(c.Scope, s) {
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
			out = append(out, v.t.gateways.Get(k))
		}
	}
	return out
}

// sniClusters returns the names of the SNI-DNAT clusters of a server: of each service that its hosts cover, in any
// namespace.
func (v *view) sniClusters(c cohort.Scope, s server) []string {
	var list []string
	for svc := range v.Index.ScopeOf(c.Namespace, c.Sidecar).Services {
		if svc.MeshExternal || svc.Resolution == registry.Alias || !s.covers(svc.Host) {
			continue
		}
		for p := range svc.ImportedPorts {
			if p.Protocol == registry.UDP {
				continue
			}
			for subset := range subsets(v.rules(c, svc.Service)) {
				list = append(list, names.SNICluster(p.Number, subset, svc.Host))
			}
		}
	}
	return list
}

func (s server) covers(host string) bool {
	for _, h := range s.eachHost {
		if names.Covers(h, host) {
			return true
		}
	}
	return false
}

// internalRanges returns the ranges of addresses inside the mesh, whose forwarding headers are trusted.
func (v *view) internalRanges() frozen.List[string] {
	if v.Networks == nil {
		return frozen.List[string]{}
	}
	return v.Networks.Ranges
}

func (h *hooks) buildGateway(k gatewayKey) *envoy.Resource {
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
			Filters:                       h.tcpFilters(k.proxyContext, feature.Outbound, cluster, registry.Unsupported, 0),
			TransportSocketConnectTimeout: envoy.Duration(transportSocketTimeout),
		})
	}
	if !k.sni.Empty() {
		l.ListenerFilters = []*listenerv3.ListenerFilter{tlsInspector(nil)}
	}
	if k.route != "" {
		l.FilterChains = append(l.FilterChains, &listenerv3.FilterChain{
			Filters:                       h.httpFilters(k.proxyContext, feature.Gateway, "outbound_"+name+";", k.route, nil, k.http),
			TransportSocketConnectTimeout: envoy.Duration(transportSocketTimeout),
		})
	}
	return envoy.NewResource(name, l)
}
