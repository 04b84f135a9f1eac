package virtualservice

import (
	"slices"

	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// tlsRoutes returns the routes of an object for TLS connections that nobody has terminated, in order.
func tlsRoutes(in feature.RouteOptions) []feature.ConnectionRoute {
	o := options(in)
	var out []feature.ConnectionRoute
	for _, t := range spec(o.Object).GetTls() {
		for _, m := range t.GetMatch() {
			if o.here(m.GetPort(), m.GetGateways(), m.GetSourceNamespace()) {
				servers := slices.Clone(m.GetSniHosts())
				slices.Sort(servers)
				out = append(out, feature.ConnectionRoute{Servers: servers, Destinations: o.destinations(t.GetRoute())})
			}
		}
	}
	return out
}

// tcpRoutes returns the route of an object for TCP connections: the first that applies.
func tcpRoutes(in feature.RouteOptions) []feature.ConnectionRoute {
	o := options(in)
	for _, t := range spec(o.Object).GetTcp() {
		if len(t.GetMatch()) == 0 || slices.ContainsFunc(t.GetMatch(), func(m *networkingv1alpha3.L4MatchAttributes) bool {
			return o.here(m.GetPort(), m.GetGateways(), m.GetSourceNamespace())
		}) {
			return []feature.ConnectionRoute{{Destinations: o.destinations(t.GetRoute())}}
		}
	}
	return nil
}

// here reports whether a match is for the port, the Gateway and the namespace.
func (o options) here(port uint32, gateways []string, namespace string) bool {
	return (port == 0 || port == o.Port) && (namespace == "" || namespace == o.Namespace) &&
		(len(gateways) == 0 || slices.ContainsFunc(gateways, func(g string) bool { return names.Gateway(g, o.Object.Namespace) == o.Gateway }))
}

// destinations returns where a route leads to. A destination of weight 0 beside others gets nothing.
func (o options) destinations(list []*networkingv1alpha3.RouteDestination) []feature.ConnectionDestination {
	var out []feature.ConnectionDestination
	for _, d := range list {
		if len(list) > 1 && d.GetWeight() == 0 {
			continue
		}
		to := d.GetDestination()
		out = append(out, feature.ConnectionDestination{
			Host: names.FQDN(to.GetHost(), o.Object.Namespace, o.Domain), Subset: to.GetSubset(), Port: to.GetPort().GetNumber(), Weight: uint32(max(0, d.GetWeight())),
		})
	}
	return out
}
