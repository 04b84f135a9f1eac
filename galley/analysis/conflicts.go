package analysis

import (
	"slices"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// claim is a host that a VirtualService takes on a gateway, for those who see it: those that see it by the same right compete for it.
type claim struct {
	gateway, host string
	audience      string // "*": it is public; ".ns": it is private there; "ns": it is exported there by name
	tcp           bool
}

// conflicts reports VirtualServices that another of the same host leaves without effect. To sidecars the first by precedence alone counts. A gateway takes the
// routes of all, one after the other, and none after a route without conditions is reached.
func (a *analysis) conflicts() {
	first := map[claim]*kinds.Object{}
	for _, o := range a.routes { // by precedence
		spec := o.Spec.(*networkingv1.VirtualService)
		told := map[*kinds.Object]bool{}
		for i, written := range spec.Hosts {
			for _, g := range gatewaysOf(o) {
				for _, tcp := range []bool{false, true} {
					if tcp && len(spec.Tcp)+len(spec.Tls) == 0 || !tcp && len(spec.Http) == 0 {
						continue
					}
					if g != meshGateway && (tcp || !slices.ContainsFunc(spec.Http, unconditional)) {
						continue
					}
					for _, audience := range a.audiences(spec.ExportTo, o.Namespace) {
						c := claim{g, names.FQDN(written, o.Namespace, a.domain), audience, tcp}
						wins := first[c]
						if wins == nil {
							first[c] = o
						} else if wins != o && !told[wins] {
							told[wins] = true
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

func (a *analysis) conflict(o, wins *kinds.Object, field string, c claim) {
	why := "it is older"
	if wins.Created.Equal(o.Created) {
		why = "neither is older, and it comes first by name"
	}
	if c.gateway == meshGateway {
		a.report(o, diag.Warning, codeConflict, field, "merge the two, or remove one", "%s has the host %s too, and is the one that counts for sidecars, for %s: these routes have no effect there", wins, c.host, why)
		return
	}
	a.report(o, diag.Warning, codeUnreachable, field, "merge the two, or give the routes of the other conditions",
		"%s has the host %s on Gateway %s too, with a route without conditions, and its routes come first, for %s: the last route here is not reached", wins, c.host, c.gateway, why)
}

// audiences returns by which rights a VirtualService is seen.
func (a *analysis) audiences(exportTo []string, own string) []string {
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
