package translate

import (
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature/destinationrule"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
	"github.com/istiod-lite/istiod-lite/registry"
)

// headerKey is all that a RouteConfiguration depends on beside its virtual hosts. Those of a divided one come by themselves.
type headerKey struct {
	name    string
	divided bool
}

// routeKey is all that a whole RouteConfiguration depends on.
type routeKey struct {
	header, head *envoy.Resource
	hosts        *envoy.Set
	content      envoy.Content // of hosts
}

// virtualHostKey is all that one virtual host depends on.
type virtualHostKey struct {
	name           string
	domains        string            // one a line
	route          string            // the route configuration that it is part of
	port           uint32            // of the listener, or of the gateway's server; 0 where the listener's port says nothing
	service        *registry.Service // whose default route it has where no VirtualService routes; nil without one
	bindings       frozen.List[binding]
	destinations   frozen.List[destination]
	mesh           *mesh.Config
	gateway        bool
	proxyNamespace string // the proxy's namespace
	domain         string // the cluster's: cluster.local
	fallback       string // of the last virtual host: the cluster for what no other matched; block_all where it is BlackHoleCluster
	tls            bool   // plaintext requests are redirected to https
}

// binding is a VirtualService as it applies to a proxy.
type binding struct {
	object          *kinds.Object
	gateway         string // "mesh", or the Gateway that it is bound to
	excludedMatches string // its matches that do not hold for the proxy, as scope.ExcludedMatches writes them
}

// destination is a service that routes of a virtual host lead to, with the rule that says how its load is spread.
type destination struct {
	host    string
	service *registry.Service // nil if there is none
	rule    destinationrule.Rule
}

// route makes a route configuration as a cohort sees it: an empty one where there is none.
func (v *view) route(of cohort.Handle[cohort.Scope], name string) *envoy.Resource {
	c, key := of.Value(), setKey{typeURL: envoy.VirtualHostType, route: name, scope: of.Weak()}
	var s *version
	if c.Type == node.Router {
		s = cachedSet(v, key, func() generator[string] { return gatewayHostGenerator(v, c, name) })
	} else if b, ok := v.sidecarRouteBuilder(c, name); ok {
		s = cachedSet(v, key, func() generator[string] { return virtualHostGenerator(c, name) })
	} else if b != nil {
		s = cachedSet(v, key, func() generator[struct{}] {
			r := singlePartition(func(v *view) []*envoy.Resource {
				b, _ := v.sidecarRouteBuilder(c, name)
				return []*envoy.Resource{b.blackholeHost(b.port)}
			}, meshChanged)
			r.content = true
			return r
		})
	}
	return v.t.routes.Get(routeKeyOf(c, name, s, v.t.headers.Get))
}

// routeKeyOf gives the key of a route configuration with the virtual hosts of a version, nil where it has none; header makes what goes before them.
func routeKeyOf(c cohort.Scope, name string, s *version, header func(headerKey) *envoy.Resource) routeKey {
	k := routeKey{header: header(headerKey{name: name})}
	if s != nil {
		k.hosts, k.content = s.set, s.content
	}
	if c.Capabilities.Has(node.VHDS) && divisible(name) {
		k.head = header(headerKey{name, true})
	}
	return k
}

// divisible tells whether a route configuration can have more than one virtual host. Those of one sniffed service have one alone, and go whole.
func divisible(name string) bool {
	n, ok := names.ParseRoute(name)
	return !ok || n.Host == ""
}

func buildHeader(k headerKey) *envoy.Resource {
	rc := &routev3.RouteConfiguration{
		Name:                           k.name,
		ValidateClusters:               envoy.Bool(false), // a route may come before its cluster
		IgnorePortInHostMatching:       true,
		MaxDirectResponseBodySizeBytes: envoy.UInt32(1 << 20),
	}
	if k.divided {
		rc.Vhds = &routev3.Vhds{ConfigSource: envoy.ADS()}
	}
	r := envoy.NewResource(k.name, rc)
	r.Divided = k.divided
	return r
}

func buildRoute(k routeKey) *envoy.Resource {
	return envoy.NewRoute(k.header, k.head, k.hosts, k.content)
}

// routeBuilder is one route configuration at work.
type routeBuilder struct {
	view   *view
	cohort cohort.Scope
	scope  *scope.Scope
	route  string
	port   uint32
}

func (b *routeBuilder) virtualHostKey(name, domains string, port uint32) virtualHostKey {
	return virtualHostKey{name: name, domains: domains, route: b.route, port: port, mesh: b.view.Mesh, proxyNamespace: b.cohort.Namespace, domain: b.view.Domain}
}

// binding is a VirtualService as it applies to the proxy.
func (b *routeBuilder) binding(gateway string, vs *scope.VirtualService) binding {
	x := binding{object: vs.Object, gateway: gateway}
	for f := range b.cohort.ExcludedMatches.All {
		if f.Object == vs.Object {
			x.excludedMatches = f.Matches
		}
	}
	return x
}

// destinations finds the services that a virtual host's routes lead to.
func (b *routeBuilder) destinations(k virtualHostKey, s *registry.Service) frozen.List[destination] {
	var list []destination
	seen := map[string]struct{}{}
	add := func(host string) {
		if _, ok := seen[host]; ok {
			return
		}
		seen[host] = struct{}{}
		d := destination{host: host, service: resolveAlias(b.scope, host)}
		if d.service != nil {
			d.rule = b.view.serviceRule(b.cohort, d.service)
		}
		list = append(list, d)
	}
	if s != nil {
		add(s.Host)
	}
	for x := range k.bindings.All {
		for host := range scope.Destinations(virtualSpec(x.object)) {
			add(names.FQDN(host, x.object.Namespace, b.view.Domain))
		}
	}
	return frozen.ListOf(list...)
}

// blackholeHost makes the virtual host of a route configuration that has no other: of a port without routes, or one that is about to close. None at all would be worse, for
// Envoy 1.37 dies of a route configuration whose virtual hosts came by themselves if it is empty at last, and then comes back.
func (b *routeBuilder) blackholeHost(port uint32) *envoy.Resource {
	return b.view.virtualHost(b.virtualHostKey(names.VirtualHost(blackhole, port), "*", port))
}

// catchAllHost makes the virtual host for whatever no other matches.
func (b *routeBuilder) catchAllHost(fallback string) *envoy.Resource {
	k := b.virtualHostKey(names.AllowAny, "*", 0)
	if k.fallback = fallback; fallback == names.BlackHoleCluster {
		k.name = names.BlockAll
	}
	return b.view.virtualHost(k)
}
