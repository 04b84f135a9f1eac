package translate

import (
	"slices"
	"strconv"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature/virtualservice"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
)

func virtualSpec(o *kinds.Object) *networkingv1.VirtualService {
	return o.Spec.(*networkingv1.VirtualService)
}

// buildVirtualHost makes one virtual host. Its resource is named as Envoy names it when it comes by itself: <route configuration>/<virtual host>.
func buildVirtualHost(k virtualHostKey) *envoy.Resource {
	var h *routev3.VirtualHost
	switch k.fallback {
	case "":
		r := k.builder()
		h = &routev3.VirtualHost{Name: k.name, Domains: strings.Split(k.domains, "\n"), IncludeRequestAttemptCount: k.mesh.AttemptCount(), Routes: r.httpRoutes()}
		if len(h.Routes) == 0 && k.service != nil {
			h.Routes = []*routev3.Route{virtualservice.DefaultRoute(names.Cluster(names.Outbound, k.port, "", k.service.Host), k.service.Host, k.port,
				r.hash(names.ClusterName{Host: k.service.Host, Port: k.port}), virtualservice.DefaultRetry(k.mesh.GetDefaultHttpRetryPolicy()))}
		}
	case names.BlackHoleCluster:
		h = virtualservice.BlockAll(k.mesh.AttemptCount())
	default:
		h = virtualservice.AllowAny(k.fallback, k.mesh.AttemptCount())
	}
	if k.isBlackhole() {
		h.IncludeRequestAttemptCount = false
	}
	if k.tls {
		h.RequireTls = routev3.VirtualHost_ALL
	}
	return envoy.NewHost(k.route, h)
}

// virtualHost makes a virtual host, one for all namespaces if no VirtualService asks in which the proxy is.
func (v *view) virtualHost(k virtualHostKey) *envoy.Resource {
	perNamespace := false
	for b := range k.bindings.All {
		perNamespace = perNamespace || hasNamespaceMatch(virtualSpec(b.object))
	}
	if !perNamespace {
		k.proxyNamespace = ""
	}
	return v.t.virtualHosts.Get(k)
}

// hasNamespaceMatch tells that some match is for callers of a namespace.
func hasNamespaceMatch(v *networkingv1.VirtualService) bool {
	return slices.ContainsFunc(v.Http, func(r *networkingv1alpha3.HTTPRoute) bool {
		return slices.ContainsFunc(r.Match, func(m *networkingv1alpha3.HTTPMatchRequest) bool { return m.SourceNamespace != "" })
	})
}

// isBlackhole tells the virtual host of a gateway that has no other.
func (k virtualHostKey) isBlackhole() bool {
	return k.fallback == "" && k.service == nil && k.bindings.Empty() && !k.gateway
}

// hasRoutes tells whether VirtualServices give a virtual host any route.
func hasRoutes(k virtualHostKey) bool {
	for b := range k.bindings.All {
		if k.routedBy(b) {
			return true
		}
	}
	return false
}

// routedBy tells whether a VirtualService gives a virtual host any route.
func (k virtualHostKey) routedBy(b binding) bool { return virtualservice.Any(k.options(b)) }

// virtualHostBuilder is a hostKey with its destinations by host, which each route asks for.
type virtualHostBuilder struct {
	virtualHostKey
	byHost map[string]destination
}

func (k virtualHostKey) builder() virtualHostBuilder {
	r := virtualHostBuilder{k, map[string]destination{}}
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

// httpRoutes makes what the VirtualServices of a virtual host say.
func (r virtualHostBuilder) httpRoutes() []*routev3.Route {
	var lists [][]*routev3.Route
	for b := range r.bindings.All {
		o := r.options(b)
		o.Cluster, o.Hash = r.cluster, r.hash
		lists = append(lists, virtualservice.HTTPRoutes(o))
	}
	return virtualservice.Join(lists...)
}

// options says what the routes of a VirtualService depend on, but for their destinations.
func (k virtualHostKey) options(b binding) virtualservice.Options {
	return virtualservice.Options{
		Object:    b.object,
		Port:      k.port,
		Gateway:   b.gateway,
		Namespace: k.proxyNamespace,
		Suffix:    k.domain,
		From:      b.matchFilter(),
		Retries:   k.mesh.GetDefaultHttpRetryPolicy(),
	}
}

// matchFilter tells which matches are not foreign to the proxy.
func (b binding) matchFilter() func(*networkingv1alpha3.HTTPMatchRequest) bool {
	if b.excludedMatches == "" {
		return nil
	}
	ordinals := map[string]struct{}{}
	for o := range strings.FieldsSeq(b.excludedMatches) {
		ordinals[o] = struct{}{}
	}
	excluded := map[any]bool{}
	i := 0
	for m := range scope.SourceLabels(virtualSpec(b.object)) {
		_, excluded[m] = ordinals[strconv.Itoa(i)]
		i++
	}
	return func(m *networkingv1alpha3.HTTPMatchRequest) bool { return !excluded[m] }
}

// cluster names the cluster of a destination. Without a port, a sidecar means the port that was called, a gateway the service's only one.
func (r virtualHostBuilder) cluster(host, subset string, port uint32) string {
	if host == "" {
		return names.UnknownService
	}
	if d, ok := r.byHost[host]; ok && d.service != nil {
		host = d.service.Host // which is another where host is an alias
		if port == 0 && r.gateway && len(d.service.Ports) == 1 {
			port = d.service.Ports[0].Number
		}
	}
	if port == 0 {
		port = r.port
	}
	return names.Cluster(names.Outbound, port, subset, host)
}

// hash says by what requests to a destination are spread where its DestinationRule wants a consistent hash.
func (r virtualHostBuilder) hash(c names.ClusterName) []*routev3.RouteAction_HashPolicy {
	if d, ok := r.byHost[c.Host]; ok {
		return d.rule.HashPolicy(c.Port)
	}
	return nil
}
