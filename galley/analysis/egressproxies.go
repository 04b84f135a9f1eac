package analysis

import (
	"slices"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// egressProxies reports Sidecars whose outboundTrafficPolicy names an egress proxy that is not reachable.
func (a *analysis) egressProxies() {
	const effect = "connections to no service fail"
	for _, o := range a.of(kinds.Sidecar) {
		spec := o.Spec.(*networkingv1.Sidecar)
		d := spec.GetOutboundTrafficPolicy().GetEgressProxy()
		if d.GetHost() == "" {
			continue
		}
		const field = "spec.outboundTrafficPolicy.egressProxy"
		v := &virtual{analysis: a, object: o, severity: a.failing(), effect: effect}
		v.destination(field, d, ruleUse{
			clients: &clients{namespaces: []string{o.Namespace}, blind: map[string]string{}, lacking: map[subsetKey]string{}},
		})
		name := names.Destination(d.Host, o.Namespace, a.domain)
		if all := a.hosts[name]; len(all) > 0 && !imports(egressOf(o), all[0]) {
			a.report(o, v.severity, codeReference, field+".host", "add "+all[0].object.Namespace+"/"+name+" to the hosts of its egress",
				"the Sidecar's own egress does not have the host %s: %s", name, effect)
		}
	}
}

// egressListener is an egress listener of a Sidecar.
type egressListener struct {
	*networkingv1alpha3.IstioEgressListener
	hosts *names.EgressHosts
}

// egressOf returns the egress listeners of a Sidecar.
func egressOf(o *kinds.Object) (list []egressListener) {
	for _, l := range o.Spec.(*networkingv1.Sidecar).Egress {
		list = append(list, egressListener{l, names.ParseEgressHosts(l.GetHosts(), o.Namespace)})
	}
	return list
}

// imports reports whether the egress of a Sidecar has a host. Without egress it has all.
func imports(egress []egressListener, h *host) bool {
	return len(egress) == 0 || slices.ContainsFunc(egress, func(l egressListener) bool { return l.hosts.Covers(h.object.Namespace, h.name) })
}
