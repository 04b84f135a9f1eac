package analysis

import (
	"slices"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// portSelectors reports destinations without a port although their host has several. The proxy then uses the port of
// the request, and a gateway's ports are rarely ports of the host.
func (a *analysis) portSelectors() {
	for _, o := range a.judged {
		spec := o.Spec.(*networkingv1.VirtualService)
		for i, h := range spec.Http {
			for j, r := range h.Route {
				a.portSelector(o, indexed(indexed("spec.http", i)+".route", j)+".destination", r.Destination)
			}
		}
		for i, t := range spec.Tls {
			for j, r := range t.Route {
				a.portSelector(o, indexed(indexed("spec.tls", i)+".route", j)+".destination", r.Destination)
			}
		}
		for i, t := range spec.Tcp {
			for j, r := range t.Route {
				a.portSelector(o, indexed(indexed("spec.tcp", i)+".route", j)+".destination", r.Destination)
			}
		}
	}
}

func (a *analysis) portSelector(o *kinds.Object, field string, d *networkingv1alpha3.Destination) {
	if d.GetPort().GetNumber() != 0 || d.GetHost() == "" {
		return
	}
	name := a.resolved(names.Destination(d.Host, o.Namespace, a.domain))
	ports := a.ports(name)
	if len(ports.numbers) < 2 {
		return
	}
	severity, effect := diag.Warning, "requests to other ports than these get 503"
	if !slices.Contains(gatewaysOf(o), meshGateway) {
		severity, effect = diag.Error, "a gateway takes the port that the request came to, and gives 503 if it is none of these"
	}
	a.report(o, severity, codePortRequired, field, "add port: {number: …} with one of them",
		"%s has several ports, %s, and the destination names none: %s", name, ports.text, effect)
}
