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
	"github.com/istiod-lite/istiod-lite/pilot/feature/destinationrule"
	"github.com/istiod-lite/istiod-lite/pilot/feature/virtualservice"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
)

func virtualSpec(o *kinds.Object) *networkingv1.VirtualService {
	return o.Spec.(*networkingv1.VirtualService)
}

// buildHost makes one virtual host. Its resource is named as Envoy names it when it comes by itself: <route configuration>/<virtual host>.
func buildHost(k hostKey) *envoy.Resource {
	var h *routev3.VirtualHost
	switch k.fallback {
	case "":
		h = &routev3.VirtualHost{Name: k.name, Domains: strings.Split(k.domains, "\n"), IncludeRequestAttemptCount: k.mesh.AttemptCount(), Routes: httpRoutes(k)}
		if len(h.Routes) == 0 && k.service != nil {
			h.Routes = []*routev3.Route{virtualservice.DefaultRoute(names.Cluster(names.Outbound, k.port, "", k.service.Host), k.service.Host, k.port,
				k.hash(names.ClusterName{Host: k.service.Host, Port: k.port}), virtualservice.DefaultRetry(k.mesh.GetDefaultHttpRetryPolicy()))}
		}
	case names.BlackHoleCluster:
		h = virtualservice.BlockAll(k.mesh.AttemptCount())
	default:
		h = virtualservice.AllowAny(k.fallback, k.mesh.AttemptCount())
	}
	if k.nothing() {
		h.IncludeRequestAttemptCount = false
	}
	if k.tls {
		h.RequireTls = routev3.VirtualHost_ALL
	}
	return envoy.NewHost(k.route, h)
}

// host makes a virtual host, one for all namespaces if no VirtualService asks in which the proxy is.
func (v *view) host(k hostKey) *envoy.Resource {
	asked := false
	for b := range k.virtual.All {
		asked = asked || asksNamespace(virtualSpec(b.object))
	}
	if !asked {
		k.proxy = ""
	}
	return v.t.hosts.Get(k)
}

// asksNamespace tells that some match is for callers of a namespace.
func asksNamespace(v *networkingv1.VirtualService) bool {
	return slices.ContainsFunc(v.Http, func(r *networkingv1alpha3.HTTPRoute) bool {
		return slices.ContainsFunc(r.Match, func(m *networkingv1alpha3.HTTPMatchRequest) bool { return m.SourceNamespace != "" })
	})
}

// nothing tells the virtual host of a gateway that has no other.
func (k hostKey) nothing() bool {
	return k.fallback == "" && k.service == nil && k.virtual.Empty() && !k.gateway
}

// routes tells whether VirtualServices give a virtual host any route.
func routes(k hostKey) bool {
	for b := range k.virtual.All {
		if k.takes(b) {
			return true
		}
	}
	return false
}

// takes tells whether a VirtualService gives a virtual host any route.
func (k hostKey) takes(b binding) bool { return virtualservice.Any(k.options(b)) }

// httpRoutes makes what the VirtualServices of a virtual host say.
func httpRoutes(k hostKey) []*routev3.Route {
	var lists [][]*routev3.Route
	for b := range k.virtual.All {
		lists = append(lists, virtualservice.HTTPRoutes(k.options(b)))
	}
	return virtualservice.Join(lists...)
}

func (k hostKey) options(b binding) virtualservice.Options {
	return virtualservice.Options{
		Object:    b.object,
		Port:      k.port,
		Gateway:   b.gateway,
		Namespace: k.proxy,
		Suffix:    k.domain,
		From:      b.from(),
		Cluster:   k.cluster,
		Hash:      k.hash,
		Retries:   k.mesh.GetDefaultHttpRetryPolicy(),
	}
}

// from tells which matches are not foreign to the proxy.
func (b binding) from() func(*networkingv1alpha3.HTTPMatchRequest) bool {
	if b.foreign == "" {
		return nil
	}
	ordinals := strings.Fields(b.foreign)
	foreign := map[any]bool{}
	i := 0
	for m := range scope.Sources(virtualSpec(b.object)) {
		foreign[m] = slices.Contains(ordinals, strconv.Itoa(i))
		i++
	}
	return func(m *networkingv1alpha3.HTTPMatchRequest) bool { return !foreign[m] }
}

// cluster names the cluster of a destination. Without a port, a sidecar means the port that was called, a gateway the service's only one.
func (k hostKey) cluster(host, subset string, port uint32) string {
	if host == "" {
		return names.UnknownService
	}
	if d := k.destination(host); d != nil && d.service != nil {
		host = d.service.Host // which is another where host is an alias
		if port == 0 && k.gateway && len(d.service.Ports) == 1 {
			port = d.service.Ports[0].Number
		}
	}
	if port == 0 {
		port = k.port
	}
	return names.Cluster(names.Outbound, port, subset, host)
}

// hash says by what requests to a destination are spread where its DestinationRule wants a consistent hash.
func (k hostKey) hash(c names.ClusterName) []*routev3.RouteAction_HashPolicy {
	if d := k.destination(c.Host); d != nil {
		return destinationrule.HashPolicy(d.rules, c.Port)
	}
	return nil
}

func (k hostKey) destination(host string) *destination {
	for d := range k.reached.All {
		if d.host == host || d.service != nil && d.service.Host == host {
			return &d
		}
	}
	return nil
}
