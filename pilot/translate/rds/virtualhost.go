package rds

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/api/substitution"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
	"github.com/istiod-lite/istiod-lite/pilot/translate/hooks"
	"github.com/istiod-lite/istiod-lite/registry"
)

// buildVirtualHost makes one virtual host. Its resource has the name that VHDS uses: <route configuration>/<virtual
// host>.
func (b builder) buildVirtualHost(k virtualHostKey) *envoy.Resource {
	var host *routev3.VirtualHost
	switch k.fallback {
	case "":
		r := k.builder(b.Hooks)
		host = &routev3.VirtualHost{Name: k.name, Domains: strings.Split(k.domains, "\n"),
			IncludeRequestAttemptCount: k.mesh.AttemptCount(), Routes: r.httpRoutes()}
		if k.sessions {
			setRouteSessions(host.Routes, k.destinations)
		}
		if len(host.Routes) == 0 && k.service != nil {
			host.Routes = []*routev3.Route{defaultRoute(names.Cluster(names.Outbound, k.port, "", k.service.Host), k.service.Host, k.port,
				r.Hash(names.ClusterName{Host: k.service.Host, Port: k.port}), feature.Retries(k.mesh.GetDefaultHttpRetryPolicy()))}
		}
	case names.BlackHoleCluster:
		host = blockAll(k.mesh.AttemptCount())
	default:
		host = AllowAny(k.fallback, k.mesh.AttemptCount())
		host.Routes[0].GetRoute().AppendXForwardedHost = forwardsHost(k.mesh)
	}
	if k.isBlackhole() {
		host.IncludeRequestAttemptCount = false
	}
	if k.tls {
		host.RequireTls = routev3.VirtualHost_ALL
	}
	if forwardsHost(k.mesh) {
		forwardHost(host)
	}
	if k.session != (registry.Session{}) {
		setSession(host, k.session)
	}
	if k.http3 != 0 {
		offerHTTP3(host, k.http3)
	}
	return envoy.NewHost(k.route, host)
}

// forwardsHost reports whether requests with a rewritten host carry the original host in a header.
func forwardsHost(m *mesh.Config) bool {
	return m.GetDefaultConfig().GetProxyHeaders().GetXForwardedHost().GetEnabled().GetValue()
}

// forwardHost adds the original host to requests whose host is rewritten.
func forwardHost(h *routev3.VirtualHost) {
	for _, r := range h.Routes {
		a := r.GetRoute()
		rewrites := a.GetHostRewriteSpecifier() != nil ||
			slices.ContainsFunc(a.GetWeightedClusters().GetClusters(), func(c *routev3.WeightedCluster_ClusterWeight) bool {
				return c.HostRewriteSpecifier != nil
			})
		if a != nil && rewrites {
			a.AppendXForwardedHost = true
		}
	}
}

// offerHTTP3 makes responses tell clients that they may call by HTTP/3 for a day.
func offerHTTP3(h *routev3.VirtualHost, port uint32) {
	for _, r := range h.Routes {
		r.ResponseHeadersToAdd = append(r.ResponseHeadersToAdd, &corev3.HeaderValueOption{
			Header: &corev3.HeaderValue{Key: "alt-svc", Value: fmt.Sprintf(`h3=":%d"; ma=86400`, port)},
		})
	}
}

// virtualHost returns a virtual host. All namespaces share it unless a VirtualService matches on the client's
// namespace, and all Envoys share it unless a header has a command that some do not have.
func (m *Routes) virtualHost(k virtualHostKey) *envoy.Resource {
	perNamespace, older := false, !k.capabilities.Has(node.RecentCommands)
	k.capabilities = node.RecentCommands
	for b := range k.bindings.All {
		spec := scope.VirtualSpec(b.object)
		perNamespace = perNamespace || hasNamespaceMatch(spec)
		if older && hasRecentCommand(spec) {
			k.capabilities = 0
		}
	}
	if !perNamespace {
		k.proxyNamespace = ""
	}
	return m.virtualHosts.Get(k)
}

// hasRecentCommand reports whether an added header has a command that an older Envoy does not have.
func hasRecentCommand(v *networkingv1.VirtualService) bool {
	in := func(h *networkingv1alpha3.Headers) bool {
		for _, o := range []*networkingv1alpha3.Headers_HeaderOperations{h.GetRequest(), h.GetResponse()} {
			for _, values := range []map[string]string{o.GetSet(), o.GetAdd()} {
				for _, value := range values {
					if substitution.Recent(value) != "" {
						return true
					}
				}
			}
		}
		return false
	}
	return slices.ContainsFunc(v.Http, func(r *networkingv1alpha3.HTTPRoute) bool {
		return in(r.Headers) || slices.ContainsFunc(r.Route, func(d *networkingv1alpha3.HTTPRouteDestination) bool { return in(d.Headers) })
	})
}

// hasNamespaceMatch reports whether some match is for clients in a namespace.
func hasNamespaceMatch(v *networkingv1.VirtualService) bool {
	return slices.ContainsFunc(v.Http, func(r *networkingv1alpha3.HTTPRoute) bool {
		return slices.ContainsFunc(r.Match, func(m *networkingv1alpha3.HTTPMatchRequest) bool { return m.SourceNamespace != "" })
	})
}

// isBlackhole reports whether this is the virtual host made by blackholeHost.
func (k virtualHostKey) isBlackhole() bool {
	return k.fallback == "" && k.service == nil && k.bindings.Empty() && !k.gateway
}

// hasRoutes reports whether any VirtualService of a virtual host has a route for it.
func (m *Routes) hasRoutes(k virtualHostKey) bool {
	return lists.Any(k.bindings.All, func(b binding) bool { return m.hooks.HasRoutes(k.options(b)) })
}

// virtualHostBuilder is a virtualHostKey with its destinations by host, which each route needs.
type virtualHostBuilder struct {
	virtualHostKey
	hooks  *hooks.Hooks
	byHost map[string]destination
	made   map[*routev3.Route]feature.Rule // optional
}

func (k virtualHostKey) builder(h *hooks.Hooks) virtualHostBuilder {
	r := virtualHostBuilder{virtualHostKey: k, hooks: h, byHost: map[string]destination{}}
	for d := range k.destinations.All {
		r.add(d.host, d)
		if d.service != nil {
			r.add(d.service.Host, d)
		}
	}
	return r
}

func (r virtualHostBuilder) add(host string, d destination) {
	if _, ok := r.byHost[host]; !ok {
		r.byHost[host] = d
	}
}

// httpRoutes makes the routes of the VirtualServices of a virtual host.
func (r virtualHostBuilder) httpRoutes() []*routev3.Route {
	var all []feature.RouteOptions
	var destinations feature.Destinations = r
	for b := range r.bindings.All {
		o := r.options(b)
		o.Destinations, o.Made = destinations, r.made
		all = append(all, o)
	}
	return r.hooks.HTTPRoutes(all)
}

// options returns the input for the routes of a VirtualService, without their destinations.
func (k virtualHostKey) options(b binding) feature.RouteOptions {
	return feature.RouteOptions{
		Object:        b.object,
		Port:          k.port,
		Gateway:       b.gateway,
		Namespace:     k.proxyNamespace,
		Domain:        k.domain,
		SourceMatches: scope.MatchFilter(scope.VirtualSpec(b.object), b.excludedMatches),
		Retries:       k.mesh.GetDefaultHttpRetryPolicy(),
		Capabilities:  k.capabilities,
	}
}

// Cluster returns the cluster name of a destination. A destination without a port means the port that was called, on a
// gateway the service's only port.
func (r virtualHostBuilder) Cluster(host, subset string, port uint32) string {
	if host == "" {
		return names.UnknownService
	}
	if d, ok := r.byHost[host]; ok && d.service != nil {
		host = d.service.Host // differs if host is an alias
		if port == 0 && r.gateway && len(d.service.Ports) == 1 {
			port = d.service.Ports[0].Number
		}
	}
	port = cmp.Or(port, r.port)
	return names.Cluster(names.Outbound, port, subset, host)
}

// Hash returns the hash policies of a destination whose DestinationRule wants a consistent hash.
func (r virtualHostBuilder) Hash(c names.ClusterName) []*routev3.RouteAction_HashPolicy {
	d, ok := r.byHost[c.Host]
	if !ok {
		return nil
	}
	for s := range d.subsets.All {
		if s.name == c.Subset {
			return r.hooks.HashPolicies(s.rule, c.Port)
		}
	}
	return r.hooks.HashPolicies(d.rule, c.Port)
}
