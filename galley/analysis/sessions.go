package analysis

import (
	"slices"
	"strconv"

	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// sessions reports labels that ask for persistent sessions where they have no effect: everywhere if the control plane
// does not enable them, else in VirtualServices by which a gateway leads to the service under other names alone.
func (a *analysis) sessions() {
	if !a.options.PersistentSessions {
		for _, kind := range []*kinds.Kind{kinds.Service, kinds.ServiceEntry} {
			for _, o := range a.of(kind) {
				for _, label := range []string{names.LabelSession, names.LabelSessionHeader} {
					if o.Labels[label] != "" {
						a.report(o, diag.Warning, codeNoEffect, "metadata.labels["+strconv.Quote(label)+"]",
							"set "+names.SessionsVariable+"=true for the control plane, or remove the label",
							"the control plane does not have %s: requests of a session do not stay at one endpoint", names.SessionsVariable)
					}
				}
			}
		}
		return
	}
	for _, o := range a.judged {
		gateway := slices.IndexFunc(gatewaysOf(o), func(g string) bool { return g != meshGateway })
		if gateway < 0 {
			continue
		}
		spec := o.Spec.(*networkingv1.VirtualService)
		own := map[string]bool{}
		for _, h := range spec.Hosts {
			own[names.FQDN(h, o.Namespace, a.domain)] = true
		}
		for i, h := range spec.Http {
			for j, r := range h.Route {
				name := names.Destination(r.GetDestination().GetHost(), o.Namespace, a.domain)
				if list := a.hosts[name]; !own[name] && len(list) > 0 && names.HasPersistentSession(list[0].object.Labels) {
					a.report(o, diag.Info, codeNoEffect, indexed(indexed("spec.http", i)+".route", j)+".destination.host",
						"add the host "+name+" to the VirtualService and to the server of the Gateway, or leave it so",
						"%s asks for sessions, and a gateway keeps them only if the VirtualService has its own name: "+
							"requests by %s do not stay at one endpoint", list[0].object, gatewaysOf(o)[gateway])
				}
			}
		}
	}
}
