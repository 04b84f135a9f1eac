package analysis

import (
	"slices"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// contested is what VirtualServices compete for: a host on a gateway, among those that are exported in the same way.
type contested struct {
	gateway, host string
	exported      string // "*": to all; ".ns": to its own namespace only; "ns": to another by name
	tcp           bool
}

// conflicts reports VirtualServices that have no effect because of another with the same host. For sidecars only the
// first by precedence counts. A gateway takes the routes of all, one after the other, but reaches none after a route
// without conditions.
func (a *analysis) conflicts() {
	first := map[contested]*kinds.Object{}
	for _, o := range a.routes { // by precedence
		spec := o.Spec.(*networkingv1.VirtualService)
		reported := map[*kinds.Object]bool{}
		for i, written := range spec.Hosts {
			for _, g := range gatewaysOf(o) {
				for _, tcp := range []bool{false, true} {
					if tcp && len(spec.Tcp)+len(spec.Tls) == 0 || !tcp && len(spec.Http) == 0 {
						continue
					}
					if g != meshGateway && (tcp || !slices.ContainsFunc(spec.Http, unconditional)) {
						continue
					}
					for _, export := range a.exports(spec.ExportTo, o.Namespace) {
						c := contested{g, names.FQDN(written, o.Namespace, a.domain), export, tcp}
						wins := first[c]
						if wins == nil {
							first[c] = o
						} else if wins != o && !reported[wins] {
							reported[wins] = true
							a.conflict(o, wins, indexed("spec.hosts", i), c)
						}
					}
				}
			}
		}
	}
}

// unconditional reports whether a route takes every request.
func unconditional(h *networkingv1alpha3.HTTPRoute) bool { return len(h.Match) == 0 }

func (a *analysis) conflict(o, wins *kinds.Object, field string, c contested) {
	why := precedence(wins, o)
	if c.gateway == meshGateway {
		a.report(o, diag.Warning, codeConflict, field, "merge the two, or remove one", "%s has the host %s too and takes precedence for sidecars (%s): these routes have no effect there", wins, c.host, why)
		return
	}
	a.report(o, diag.Warning, codeUnreachable, field, "merge the two, or give each route of the other a match",
		"%s has the host %s on Gateway %s too and comes first (%s): its last route takes all requests, so the last route here is never reached", wins, c.host, c.gateway, why)
}

// exports returns in which ways a VirtualService is exported, as contested has them.
func (a *analysis) exports(exportTo []string, own string) []string {
	if len(exportTo) == 0 {
		exportTo = a.mesh.GetDefaultVirtualServiceExportTo()
	}
	if len(exportTo) == 0 || slices.Contains(exportTo, "*") {
		return []string{"*"}
	}
	var list []string
	for _, e := range exportTo {
		switch e {
		case "~":
		case ".", own:
			list = append(list, "."+own)
		default:
			list = append(list, e)
		}
	}
	return list
}
