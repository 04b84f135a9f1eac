package analysis

import (
	"slices"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// contested is a host on a gateway that VirtualServices with the same exportTo compete for.
type contested struct {
	gateway, host string
	exported      string // "*" for all namespaces, ".ns" for its own namespace only, "ns" for another namespace
	tcp           bool
}

// conflicts reports VirtualServices that have no effect because another one has the same host. For sidecars only the
// first by precedence is in force. A gateway takes the routes of all in order, but never gets past a route without
// conditions.
func (a *analysis) conflicts() {
	first := map[contested]*kinds.Object{}
	compared := comparisons{most: maxComparisons}
	for _, o := range a.routes { // by precedence
		compared.begin()
		a.conflictsOf(o, first, &compared)
		a.uncompared(o, compared)
	}
}

func (a *analysis) conflictsOf(o *kinds.Object, first map[contested]*kinds.Object, compared *comparisons) {
	spec := o.Spec.(*networkingv1.VirtualService)
	rivals := a.rivalsOf(o)
	defer rivals.end("spec.hosts")
	gateways, exports, always := gatewaysOf(o), a.exportsOf(spec.ExportTo, o.Namespace), slices.ContainsFunc(spec.Http, unconditional)
	for i, written := range spec.Hosts {
		host := names.FQDN(written, o.Namespace, a.domain)
		for _, g := range gateways {
			for _, tcp := range []bool{false, true} {
				if tcp && len(spec.Tcp)+len(spec.Tls) == 0 || !tcp && len(spec.Http) == 0 || g != meshGateway && (tcp || !always) {
					continue
				}
				for _, export := range exports {
					if !compared.more() {
						return
					}
					c := contested{g, host, export, tcp}
					wins := first[c]
					if wins == nil {
						first[c] = o
					} else if wins != o && rivals.name("", wins) {
						a.conflict(o, wins, indexed("spec.hosts", i), c)
					}
				}
			}
		}
	}
}

// Bounds of the comparisons of one analyzer. The number of names that an object competes for may be the product of its
// lists.
const (
	maxComparisons    = 1 << 20
	maxOwnComparisons = 1 << 14 // for one object
)

// comparisons holds the remaining number of comparisons.
type comparisons struct {
	most, own int
	refused   bool // the current object was not compared completely
}

// begin starts the comparisons of another object.
func (c *comparisons) begin() { c.own, c.refused = maxOwnComparisons, false }

// more reports whether another comparison is allowed.
func (c *comparisons) more() bool {
	if c.most == 0 || c.own == 0 {
		c.refused = true
		return false
	}
	c.most--
	c.own--
	return true
}

// uncompared reports an object that was not compared completely.
func (a *analysis) uncompared(o *kinds.Object, c comparisons) {
	if c.refused {
		a.report(o, diag.Info, codeLimit, "spec.hosts", "split the VirtualService, or export it to fewer namespaces",
			"its hosts, times its Gateways, the namespaces of exportTo and its matches, are too many: "+
				"not all of them are compared with those of other VirtualServices")
	}
}

// unconditional reports whether a route takes every request.
func unconditional(h *networkingv1alpha3.HTTPRoute) bool { return len(h.Match) == 0 }

func (a *analysis) conflict(o, wins *kinds.Object, field string, c contested) {
	why := precedence(wins, o)
	if c.gateway == meshGateway {
		a.report(o, diag.Warning, codeConflict, field, "merge the two, or remove one",
			"%s has the host %s too and takes precedence for sidecars (%s): these routes have no effect there", wins, c.host, why)
		return
	}
	a.report(o, diag.Warning, codeUnreachable, field, "merge the two, or give each route of the other a match",
		"%s has the host %s on Gateway %s too and comes first (%s): its last route takes all requests, so the last route here is never reached",
		wins, c.host, c.gateway, why)
}

// exportsOf returns the values of contested.exported of a VirtualService.
func (a *analysis) exportsOf(exportTo []string, own string) []string {
	exportTo = exports(exportTo, a.mesh.GetDefaultVirtualServiceExportTo())
	if slices.Contains(exportTo, "*") {
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
