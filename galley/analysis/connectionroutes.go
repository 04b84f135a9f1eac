package analysis

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/servers"
)

// connected is what routes of connections compete for on a gateway: a TLS server name, or the TCP connections of a
// server of the Gateway, or of a host if the Gateway is not there, on a port. Port 0 is any port.
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
	rules, told := map[connected]string{}, map[string]bool{} // rules of this object, and the reported ones
	subnets := hasSubnets(spec)
	claim := func(g, name string, port uint32, tls bool, field, what string) {
		if g != meshGateway {
			for _, export := range exports {
				if !compared.more() {
					return
				}
				c := connected{names.Gateway(g, o.Namespace), name, export, port, tls}
				wins := first[c]
				if wins == nil {
					whole := c
					whole.port = 0
					wins = first[whole]
				}
				if wins == nil {
					rule := field[:strings.IndexByte(field, ']')+1]
					if by, taken := rules[c]; !taken {
						rules[c] = rule
						own = append(own, c)
					} else if subnets && by != rule && !told[rule] {
						told[rule] = true
						a.report(o, diag.Warning, codeUnreachable, rule, "bind one of the two to sidecars alone, or remove it",
							"gateways ignore destinationSubnets, and %s comes before: this route is never reached on Gateway %s", by, c.gateway)
					}
					continue
				}
				if rivals.name(field, wins) {
					a.report(o, diag.Warning, codeUnreachable, field, "leave it to one of the two, or merge them",
						"%s routes %s on Gateway %s too and comes first (%s): this route is never reached there",
						wins, what, c.gateway, precedence(wins, o))
				}
			}
		}
	}
	each := func(of []string, claim func(gateway string)) {
		if len(of) == 0 {
			of = gateways
		}
		for _, g := range of {
			claim(g)
		}
	}
	for i, r := range spec.Tls {
		for j, m := range r.Match {
			for k, name := range m.SniHosts {
				field := indexed(indexed(indexed("spec.tls", i)+".match", j)+".sniHosts", k)
				each(m.Gateways, func(g string) {
					claim(g, strings.ToLower(name), m.Port, true, field, "the server name "+strings.ToLower(name))
				})
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
			each(m.Gateways, func(g string) {
				gateway := a.gatewayNamed(names.Gateway(g, o.Namespace))
				if gateway == nil {
					for _, host := range hosts {
						if !compared.more() {
							return
						}
						claim(g, host, m.Port, false, indexed("spec.tcp", i), "connections for the host "+host)
					}
					return
				}
				for j, s := range gateway.Spec.(*networkingv1.Gateway).Servers {
					port := s.GetPort().GetNumber()
					if use := servers.UseOf(s); (use == servers.PlainTCP || use == servers.SecureTCP) &&
						(m.Port == 0 || m.Port == port) && a.servesHost(gateway, s, o, hosts, compared) {
						claim(g, indexed("spec.servers", j), port, false, indexed("spec.tcp", i), fmt.Sprintf("connections to port %d", port))
					}
				}
			})
		}
	}
	return own
}

// servesHost reports whether a server of a Gateway has one of the hosts of a VirtualService.
func (a *analysis) servesHost(
	gateway *kinds.Object, s *networkingv1alpha3.Server, o *kinds.Object, hosts []string, compared *comparisons,
) bool {
	return slices.ContainsFunc(s.Hosts, func(text string) bool {
		ns, host := serverHost(gateway, text)
		return (ns == "*" || ns == o.Namespace) && slices.ContainsFunc(hosts, func(h string) bool {
			return compared.more() && names.Overlap(h, host)
		})
	})
}

// hasSubnets reports whether a rule of a VirtualService for connections has destinationSubnets.
func hasSubnets(spec *networkingv1.VirtualService) bool {
	return slices.ContainsFunc(spec.Tls, func(r *networkingv1alpha3.TLSRoute) bool {
		return slices.ContainsFunc(r.Match, func(m *networkingv1alpha3.TLSMatchAttributes) bool { return len(m.DestinationSubnets) > 0 })
	}) || slices.ContainsFunc(spec.Tcp, func(r *networkingv1alpha3.TCPRoute) bool {
		return slices.ContainsFunc(r.Match, func(m *networkingv1alpha3.L4MatchAttributes) bool { return len(m.DestinationSubnets) > 0 })
	})
}
