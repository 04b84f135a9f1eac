package analysis

import (
	"cmp"
	"strings"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// connected is what routes of connections compete for on a gateway: a TLS server name or a TCP host, on a port. Port 0
// is any port.
type connected struct {
	gateway, name, exported string
	port                    uint32
	tls                     bool
}

// connectionRoutes reports TLS and TCP routes that a gateway never reaches, because routes of older VirtualServices
// take the same connections. Each route is compared with each of these.
func (a *analysis) connectionRoutes() {
	first := map[connected]*kinds.Object{}
	compared := comparisons{most: maxComparisons}
	for _, o := range a.routes { // by precedence
		compared.begin()
		for _, c := range a.connectionRoutesOf(o, first, &compared) { // routes of one object are in written order
			first[c] = cmp.Or(first[c], o)
		}
		a.uncompared(o, compared)
	}
}

// connectionRoutesOf returns the names that an object has routes for and no object before it has.
func (a *analysis) connectionRoutesOf(o *kinds.Object, first map[connected]*kinds.Object, compared *comparisons) (own []connected) {
	spec := o.Spec.(*networkingv1.VirtualService)
	if len(spec.Tls)+len(spec.Tcp) == 0 {
		return nil
	}
	gateways, exports := gatewaysOf(o), a.exportsOf(spec.ExportTo, o.Namespace)
	rivals := a.rivalsOf(o)
	defer rivals.end("spec")
	claim := func(of []string, name string, port uint32, tls bool, field, what string) {
		if len(of) == 0 {
			of = gateways
		}
		for _, g := range of {
			if g == meshGateway {
				continue
			}
			for _, export := range exports {
				if !compared.more() {
					return
				}
				c := connected{gatewayName(g, o.Namespace), name, export, port, tls}
				wins := first[c]
				if wins == nil {
					whole := c
					whole.port = 0
					wins = first[whole]
				}
				if wins == nil {
					own = append(own, c)
					continue
				}
				if rivals.name(field, wins) {
					a.report(o, diag.Warning, codeUnreachable, field, "leave it to one of the two, or merge them",
						"%s routes %s %s on Gateway %s too and comes first (%s): this route is never reached there",
						wins, what, name, c.gateway, precedence(wins, o))
				}
			}
		}
	}
	for i, r := range spec.Tls {
		for j, m := range r.Match {
			if len(m.DestinationSubnets) > 0 {
				continue
			}
			for k, name := range m.SniHosts {
				claim(m.Gateways, strings.ToLower(name), m.Port, true,
					indexed(indexed(indexed("spec.tls", i)+".match", j)+".sniHosts", k), "the server name")
			}
		}
	}
	hosts := lists.Map(spec.Hosts, func(host string) string { return names.FQDN(host, o.Namespace, a.domain) })
	for i, r := range spec.Tcp {
		match := r.Match
		if len(match) == 0 {
			match = []*networkingv1alpha3.L4MatchAttributes{{}}
		}
		for _, m := range match {
			for _, host := range hosts {
				if !compared.more() {
					return own
				}
				claim(m.Gateways, host, m.Port, false, indexed("spec.tcp", i), "connections for the host")
			}
		}
	}
	return own
}
