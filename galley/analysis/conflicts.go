package analysis

import (
	"slices"

	networkingv1 "istio.io/api/networking/v1"

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

// conflicts reports VirtualServices that have no effect for sidecars because another one has the same host: only the
// first by precedence is in force.
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
	if !slices.Contains(gatewaysOf(o), meshGateway) {
		return
	}
	exports := a.exportsOf(spec.ExportTo, o.Namespace)
	for i, written := range spec.Hosts {
		host := names.FQDN(written, o.Namespace, a.domain)
		for _, tcp := range []bool{false, true} {
			if tcp && len(spec.Tcp)+len(spec.Tls) == 0 || !tcp && len(spec.Http) == 0 {
				continue
			}
			for _, export := range exports {
				if !compared.more() {
					return
				}
				c := contested{meshGateway, host, export, tcp}
				wins := first[c]
				if wins == nil {
					first[c] = o
				} else if wins != o && rivals.name("", wins) {
					a.report(o, diag.Warning, codeConflict, indexed("spec.hosts", i), "merge the two, or remove one",
						"%s has the host %s too and takes precedence for sidecars (%s): these routes have no effect there",
						wins, c.host, precedence(wins, o))
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
