package rds

import (
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
	"github.com/istiod-lite/istiod-lite/pilot/scope/traffic"
	"github.com/istiod-lite/istiod-lite/pilot/translate/engine"
	"github.com/istiod-lite/istiod-lite/pilot/translate/view"
	"github.com/istiod-lite/istiod-lite/registry"
)

// headerKey is the whole input of a RouteConfiguration without its virtual hosts. A divided one gets its virtual hosts
// by VHDS.
type headerKey struct {
	name    string
	divided bool
}

// routeKey is the whole input of a whole RouteConfiguration.
type routeKey struct {
	header, head *envoy.Resource
	hosts        *envoy.Set
	content      envoy.Content // content of hosts
}

// virtualHostKey is the whole input of one virtual host.
type virtualHostKey struct {
	name           string
	domains        string            // one per line
	route          string            // route configuration that contains it
	port           uint32            // port of the listener, or of the gateway's server; 0 if it depends on neither
	service        *registry.Service // service of the default route if no VirtualService has a route; nil without one
	bindings       frozen.List[binding]
	destinations   frozen.List[destination]
	mesh           *mesh.Config
	gateway        bool
	proxyNamespace string            // empty if no route depends on it
	domain         string            // domain of the cluster: cluster.local
	fallback       string            // for the catch-all: cluster for unmatched requests; BlackHoleCluster makes it block_all
	tls            bool              // whether plaintext requests are redirected to https
	http3          uint32            // port at which clients may call by HTTP/3; 0 for none
	session        registry.Session  // part of requests that names their endpoint
	sessions       bool              // whether routes keep the sessions of the services to which they lead
	capabilities   node.Capabilities // RecentCommands, or 0 if a route depends on its absence
}

// binding is a VirtualService as it applies to a proxy.
type binding struct {
	object          *kinds.Object
	gateway         string // "mesh", or the Gateway that it is bound to
	excludedMatches string // matches that do not apply to the proxy, encoded by scope.ExcludedMatches
}

// destination is a service that routes of a virtual host lead to, with the rule for its load balancing.
type destination struct {
	host    string
	service *registry.Service // nil if there is none
	ruled
}

// ruled is the rule for calls to a service, and the rules of its subsets with a consistent hash.
type ruled struct {
	rule    traffic.Rule
	subsets frozen.List[hashedSubset]
}

// hashedSubset is a subset whose rule has a consistent hash.
type hashedSubset struct {
	name string
	rule traffic.Rule
}

// routeKeyOf returns the key of a route configuration with the virtual hosts of a version, which may be nil. header
// makes the part before the virtual hosts.
func routeKeyOf(c cohort.Client, name string, s *engine.Version, header func(headerKey) *envoy.Resource) routeKey {
	k := routeKey{header: header(headerKey{name: name})}
	if s != nil {
		k.hosts, k.content = s.Set, s.Content
	}
	if c.Capabilities.Has(node.VHDS) && divisible(name) {
		k.head = header(headerKey{name, true})
	}
	return k
}

// divisible reports whether a route configuration can have more than one virtual host. The route configuration of a
// single sniffed service has one, and is always sent whole.
func divisible(name string) bool {
	n, ok := names.ParseRoute(name)
	return !ok || n.Host == "" || isSocketRoute(name)
}

func buildHeader(k headerKey) *envoy.Resource {
	rc := &routev3.RouteConfiguration{
		Name:                           k.name,
		ValidateClusters:               envoy.Bool(false), // a route may come before its cluster
		IgnorePortInHostMatching:       true,
		MaxDirectResponseBodySizeBytes: envoy.UInt32(maxDirectResponse),
	}
	if k.divided {
		rc.Vhds = &routev3.Vhds{ConfigSource: envoy.ADS()}
	}
	r := envoy.NewResource(k.name, rc)
	if k.divided {
		r.SetDivided()
	}
	return r
}

func buildRoute(k routeKey) *envoy.Resource {
	return envoy.NewRoute(k.header, k.head, k.hosts, k.content)
}

// routeBuilder is the common part of the builders of sidecars' and gateways' route configurations.
type routeBuilder struct {
	routes *Routes
	view   *view.View
	cohort cohort.Client
	scope  *scope.Scope
	route  string
	port   uint32
	ruled  map[*registry.Service]ruled // cache for services that many routes lead to
}

func (b *routeBuilder) virtualHostKey(name, domains string, port uint32) virtualHostKey {
	return virtualHostKey{name: name, domains: domains, route: b.route, port: port, mesh: b.view.Mesh().With(b.cohort.Settings),
		proxyNamespace: b.cohort.Namespace, domain: b.view.Domain(),
		capabilities: b.cohort.Capabilities & node.RecentCommands, sessions: b.view.PersistentSessions()}
}

// binding returns a VirtualService as it applies to the proxy.
func (b *routeBuilder) binding(gateway string, vs *scope.VirtualService) binding {
	return binding{object: vs.Object, gateway: gateway, excludedMatches: b.cohort.ExcludedMatchesOf(vs.Object)}
}

// destinations returns the services that the routes of a virtual host lead to.
func (b *routeBuilder) destinations(k virtualHostKey, s *registry.Service) frozen.List[destination] {
	var list []destination
	seen := map[string]struct{}{}
	add := func(host string) {
		if _, ok := seen[host]; ok {
			return
		}
		seen[host] = struct{}{}
		d := destination{host: host, service: b.scope.ResolveAlias(host)}
		if d.service != nil {
			d.ruled = b.rules(d.service)
		}
		list = append(list, d)
	}
	if s != nil {
		add(s.Host)
	}
	for x := range k.bindings.All {
		for host := range scope.Destinations(scope.VirtualSpec(x.object)) {
			add(names.Destination(host, x.object.Namespace, b.view.Domain()))
		}
	}
	return frozen.ListOf(list...)
}

// rules returns the rules for calls to a service.
func (b *routeBuilder) rules(s *registry.Service) ruled {
	if of, known := b.ruled[s]; known {
		return of
	}
	all := b.view.MergedRules(b.cohort, s)
	rule, _ := all.Rule("")
	var hashed []hashedSubset
	for _, subset := range all.Subsets {
		if traffic.Hashes(subset.TrafficPolicy) {
			of, _ := all.Rule(subset.Name)
			hashed = append(hashed, hashedSubset{subset.Name, of})
		}
	}
	lists.Put(&b.ruled, s, ruled{rule, frozen.ListOf(hashed...)})
	return b.ruled[s]
}

// blackholeHost makes the only virtual host of a route configuration without others: of a port without routes, or one
// that is about to close. An empty route configuration would crash Envoy 1.37 if its virtual hosts came by VHDS, it
// becomes empty, and it is then sent again.
func (b *routeBuilder) blackholeHost(port uint32) *envoy.Resource {
	return b.routes.virtualHost(b.virtualHostKey(names.VirtualHost(blackhole, port), "*", port))
}

// catchAllHost makes the virtual host for requests that no other matches.
func (b *routeBuilder) catchAllHost(fallback string) *envoy.Resource {
	k := b.virtualHostKey(names.AllowAny, "*", 0)
	if k.fallback = fallback; fallback == names.BlackHoleCluster {
		k.name = names.BlockAll
	}
	return b.routes.virtualHost(k)
}
