package analysis

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// endpoints reports a Service without a selector and without endpoints, and why a Service with a matching selector has
// no endpoints. It does nothing for a running cluster, where Pods get addresses and Services get EndpointSlices later.
func (a *analysis) endpoints(o *kinds.Object) {
	spec := &o.Spec.(*corev1.Service).Spec
	if !a.options.Whole && !a.options.Still || spec.Type == corev1.ServiceTypeExternalName || len(a.slices[o.Namespace+"/"+o.Name]) > 0 {
		return
	}
	const effect = "it has no endpoints, and requests to it get 503"
	if len(spec.Selector) == 0 {
		if a.options.Whole {
			a.report(o, diag.Warning, codeEndpoints, "spec",
				"add a selector, or an EndpointSlice with the label kubernetes.io/service-name: "+o.Name,
				"the Service has no selector, and there is no EndpointSlice of it: %s", effect)
		}
		return
	}
	pods := a.selection(o.Namespace, spec.Selector)
	const fix = "write status.podIP into them"
	switch {
	case pods.addressless != "" && (pods.machine || pods.addresses > 0):
		a.report(o, diag.Warning, codeEndpoints, "spec.selector", fix,
			"of the Pods that the Service selects some have no IP address and are no endpoints (%s)", pods.addressless)
	case pods.machine || pods.workloads == 0 || pods.ready > 0 || pods.addresses > 0 && spec.PublishNotReadyAddresses:
	case pods.addresses > 0:
		a.report(o, diag.Warning, codeEndpoints, "spec.selector", "set the condition Ready of a Pod to \"True\", or leave it out",
			"no Pod that the Service selects is ready (%s): %s", pods.unusableText, effect)
	default:
		a.report(o, diag.Warning, codeEndpoints, "spec.selector", fix,
			"no Pod that the Service selects has an IP address (%s): %s", pods.addressless, effect)
	}
}
