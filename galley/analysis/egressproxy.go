package analysis

import (
	"slices"
	"strings"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// egressProxies reports Sidecars that lead connections to no service where proxies cannot reach.
func (a *analysis) egressProxies() {
	const effect = "connections to no service fail"
	for _, o := range a.of(kinds.Sidecar) {
		spec := o.Spec.(*networkingv1.Sidecar)
		d := spec.GetOutboundTrafficPolicy().GetEgressProxy()
		if d.GetHost() == "" {
			continue
		}
		const field = "spec.outboundTrafficPolicy.egressProxy"
		v := &virtual{
			analysis: a, object: o, severity: a.failing(), effect: effect,
			clients: &clients{namespaces: []string{o.Namespace}, blind: map[string]string{}, lacking: map[subsetKey]string{}},
		}
		v.destination(field, d)
		name := names.Destination(d.Host, o.Namespace, a.domain)
		if all := a.hosts[name]; len(all) > 0 && !imports(spec.Egress, o.Namespace, all[0]) {
			a.report(o, v.severity, codeReference, field+".host", "add "+all[0].object.Namespace+"/"+name+" to the hosts of its egress",
				"the Sidecar's own egress does not have the host %s: %s", name, effect)
		}
	}
}

// imports reports whether the egress of a Sidecar of a namespace has a host. Without egress it has all.
func imports(egress []*networkingv1alpha3.IstioEgressListener, namespace string, h *host) bool {
	has := func(written string) bool {
		ns, pattern, ok := strings.Cut(written, "/")
		if ns == "." {
			ns = namespace
		}
		return ok && (ns == "*" || ns == h.object.Namespace) && (pattern == "*" || names.Covers(pattern, h.name))
	}
	return len(egress) == 0 || slices.ContainsFunc(egress, func(l *networkingv1alpha3.IstioEgressListener) bool { return slices.ContainsFunc(l.Hosts, has) })
}
