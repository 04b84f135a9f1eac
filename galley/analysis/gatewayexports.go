package analysis

import (
	"slices"

	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
)

// gatewayExports reports VirtualServices for a Gateway that are exported to none of the namespaces where the Gateway's
// proxies run. Proxies see a VirtualService by their own namespace, not by the namespace of the Gateway.
func (a *analysis) gatewayExports() {
	for _, o := range a.judged {
		spec := o.Spec.(*networkingv1.VirtualService)
		for i, g := range gatewaysOf(o) {
			gateway := a.gatewayNamed(g)
			if gateway == nil {
				continue
			}
			_, selected := a.gatewaySelection(gateway)
			if len(selected.namespaces) == 0 || slices.ContainsFunc(selected.namespaces, func(to string) bool {
				return exported(spec.ExportTo, a.mesh.GetDefaultVirtualServiceExportTo(), o.Namespace, to)
			}) {
				continue
			}
			a.report(o, diag.Warning, codeNotExported, indexed("spec.gateways", i), "add the namespace to exportTo",
				"the proxies of %s run in namespace %s, and exportTo does not have it: they do not get these routes", gateway,
				listed(selected.namespaces))
		}
	}
}
