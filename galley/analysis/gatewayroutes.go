package analysis

import (
	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/matches"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// gatewayRoutes reports HTTP routes that a gateway never reaches, because routes of older VirtualServices take all of
// their requests for the host. A gateway has the routes of all VirtualServices of a host in order of precedence, and
// behind them the first route that takes every request.
func (a *analysis) gatewayRoutes() {
	sharing := map[contested][]*kinds.Object{}
	var shared []contested
	compared := comparisons{most: maxComparisons}
	for _, o := range a.routes { // by precedence
		compared.begin()
		for _, c := range a.contestedOn(o, &compared) {
			if sharing[c] = append(sharing[c], o); len(sharing[c]) == 2 {
				shared = append(shared, c)
			}
		}
		a.uncompared(o, compared)
	}
	named := map[*kinds.Object]*rivals{}
	for _, c := range shared {
		compared.begin()
		x := routesOfHost{analysis: a, of: c, compared: &compared}
		for _, o := range sharing[c] {
			if named[o] == nil {
				named[o] = a.rivalsOf(o)
			}
			x.add(o, named[o])
		}
	}
	for _, o := range a.routes {
		if r := named[o]; r != nil {
			r.end("spec.http")
		}
	}
}

// contestedOn returns the hosts that a VirtualService has HTTP routes for on Gateways, each once.
func (a *analysis) contestedOn(o *kinds.Object, compared *comparisons) (list []contested) {
	spec := o.Spec.(*networkingv1.VirtualService)
	if len(spec.Http) == 0 || byIngress(o) {
		return nil
	}
	exports := a.exportsOf(spec.ExportTo, o.Namespace)
	for _, g := range gatewaysOf(o) {
		if g == meshGateway {
			continue
		}
		for _, written := range spec.Hosts {
			for _, export := range exports {
				if !compared.more() {
					return list
				}
				list = append(list, contested{g, names.FQDN(written, o.Namespace, a.domain), export, false})
			}
		}
	}
	return lists.Unique(list)
}

// routesOfHost are the routes of a host on a Gateway.
type routesOfHost struct {
	*analysis
	of       contested
	compared *comparisons

	routes matches.Index[ruleOf]
	last   matches.Index[ruleOf] // routes that take every request, which come behind the others
}

// ruleOf is a rule of a VirtualService.
type ruleOf struct {
	object *kinds.Object
	field  string
}

// add adds the routes of a VirtualService, and reports the routes that are never reached.
func (x *routesOfHost) add(o *kinds.Object, rivals *rivals) {
	for i, h := range o.Spec.(*networkingv1.VirtualService).Http {
		own, left, every := ruleOf{o, indexed("spec.http", i)}, 0, false
		var by ruleOf
		for _, r := range requestsOf(h, o.Namespace) {
			if r = r.On(x.of.gateway); r == nil {
				continue
			}
			before, taken := x.routes.Containing(r, x.compared.more)
			if !taken && r.CatchAll() {
				before, taken = x.last.Containing(r, x.compared.more)
			}
			every = every || r.CatchAll()
			switch {
			case taken:
				by = before
			case h.Delegate != nil: // it takes only the requests that the delegate takes
				left++
			case r.CatchAll():
				left++
				x.last.Add(r, own)
			default:
				left++
				x.routes.Add(r, own)
			}
		}
		if left == 0 && by.object != nil && by.object != o && rivals.name(own.field, by.object) {
			x.report(o, diag.Warning, codeUnreachable, own.field, "merge the two, or give the other a match that leaves these requests",
				"%s has the host %s on Gateway %s too and comes first (%s): "+
					"its %s takes all that this route matches, so this route is never reached",
				by.object, x.of.host, x.of.gateway, precedence(by.object, o), by.field)
		}
		if every && h.Delegate == nil {
			break // the rules behind it are in no route configuration
		}
	}
	if x.compared.refused {
		x.uncompared(o, *x.compared)
	}
}
