package analysis

import (
	"slices"
	"strings"

	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// sidecarHosts reports whole names in the egress of Sidecars that no Service, ServiceEntry or VirtualService has in the
// namespace that the Sidecar names.
func (a *analysis) sidecarHosts() {
	if a.failing() != diag.Error {
		return
	}
	routed := map[string][]string{} // namespaces of the VirtualServices that have a host
	for _, v := range a.routes {
		for _, h := range v.Spec.(*networkingv1.VirtualService).Hosts {
			name := names.FQDN(h, v.Namespace, a.domain)
			routed[name] = append(routed[name], v.Namespace)
		}
	}
	for _, o := range a.of(kinds.Sidecar) {
		for i, l := range o.Spec.(*networkingv1.Sidecar).Egress {
			for j, text := range l.GetHosts() {
				p := names.ParseEgressHost(text, o.Namespace)
				spaces := slices.Clone(routed[p.Host])
				for _, h := range a.hosts[p.Host] {
					spaces = append(spaces, h.object.Namespace)
				}
				if p.Excluded || strings.HasPrefix(p.Host, "*") || p.Namespace == "*" && len(spaces) > 0 || slices.Contains(spaces, p.Namespace) {
					continue
				}
				fix := "name a Service, a ServiceEntry or a VirtualService"
				if len(spaces) > 0 {
					fix = diag.DidYouMean(slices.Min(spaces) + "/" + p.Host)
				} else if near := a.meant(p.Host, p.Host); near != "" {
					fix = diag.DidYouMean(near)
				}
				a.report(o, diag.Warning, codeReference, indexed(indexed("spec.egress", i)+".hosts", j), fix,
					"no Service, ServiceEntry or VirtualService has the host %s%s: this entry imports nothing", p.Host, inNamespace(p.Namespace))
			}
		}
	}
}

// inNamespace returns the end of a text about a namespace; "*" stands for all.
func inNamespace(namespace string) string {
	if namespace == "*" {
		return ""
	}
	return " in namespace " + namespace
}
