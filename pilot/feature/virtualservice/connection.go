package virtualservice

import (
	"net/netip"
	"slices"
	"strings"

	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// TLS implements feature.Routes.
func (virtualServices) TLS(in feature.RouteOptions) []feature.ConnectionRoute {
	o := options(in)
	var out []feature.ConnectionRoute
	for _, t := range spec(o.Object).GetTls() {
		for _, m := range t.GetMatch() {
			if o.here(m, m.GetPort(), m.GetGateways(), m.GetSourceNamespace()) {
				var servers []string
				for _, name := range m.GetSniHosts() {
					servers = append(servers, strings.ToLower(name)) // Envoy matches them in any case, and rejects a repeated name
				}
				slices.Sort(servers)
				out = append(out, feature.ConnectionRoute{Servers: slices.Compact(servers), Subnets: o.subnets(m.GetDestinationSubnets()),
					Destinations: o.destinations(t.GetRoute())})
			}
		}
	}
	return out
}

// TCP implements feature.Routes. The routes for some addresses come first, up to the first route for any address.
func (virtualServices) TCP(in feature.RouteOptions) []feature.ConnectionRoute {
	o := options(in)
	var out []feature.ConnectionRoute
	for _, t := range spec(o.Object).GetTcp() {
		anywhere := len(t.GetMatch()) == 0
		var subnets []netip.Prefix
		for _, m := range t.GetMatch() {
			if o.here(m, m.GetPort(), m.GetGateways(), m.GetSourceNamespace()) {
				of := o.subnets(m.GetDestinationSubnets())
				subnets, anywhere = append(subnets, of...), anywhere || len(of) == 0
			}
		}
		switch {
		case anywhere:
			return append(out, feature.ConnectionRoute{Destinations: o.destinations(t.GetRoute())})
		case len(subnets) > 0:
			out = append(out, feature.ConnectionRoute{Subnets: compact(subnets), Destinations: o.destinations(t.GetRoute())})
		}
	}
	return out
}

// here reports whether a match is for the port, the Gateway, the namespace and, in the mesh, for the labels of the
// proxy.
func (o options) here(match any, port uint32, gateways []string, namespace string) bool {
	return (port == 0 || port == o.Port) && (namespace == "" || namespace == o.Namespace) &&
		(o.SourceMatches == nil || o.SourceMatches(match)) &&
		(len(gateways) == 0 || slices.ContainsFunc(gateways, func(g string) bool { return names.Gateway(g, o.Object.Namespace) == o.Gateway }))
}

// subnets returns the address ranges of a match, sorted and without duplicates. Gateways ignore them.
func (o options) subnets(list []string) []netip.Prefix {
	var out []netip.Prefix
	for _, text := range list {
		if o.Gateway != mesh {
			break
		}
		if ip, err := netip.ParseAddr(text); err == nil {
			out = append(out, netip.PrefixFrom(ip, ip.BitLen()))
		} else if p, err := netip.ParsePrefix(text); err == nil {
			out = append(out, p.Masked())
		}
	}
	return compact(out)
}

// compact returns ranges sorted and without duplicates: Envoy rejects a listener with a chain that repeats a range.
func compact(subnets []netip.Prefix) []netip.Prefix {
	slices.SortFunc(subnets, netip.Prefix.Compare)
	return slices.Compact(subnets)
}

// destinations returns the destinations of a route. A destination of weight 0 beside others gets nothing.
func (o options) destinations(list []*networkingv1alpha3.RouteDestination) []feature.ConnectionDestination {
	var out []feature.ConnectionDestination
	for _, d := range list {
		if len(list) > 1 && d.GetWeight() == 0 {
			continue
		}
		to := d.GetDestination()
		out = append(out, feature.ConnectionDestination{
			Host: names.Destination(to.GetHost(), o.Object.Namespace, o.Domain), Subset: to.GetSubset(), Port: to.GetPort().GetNumber(),
			Weight: uint32(max(0, d.GetWeight())),
		})
	}
	return out
}
