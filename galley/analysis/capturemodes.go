package analysis

import (
	"cmp"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/node"
)

// captureModes reports ingress listeners of Sidecars for captured traffic, where the proxy of a selected Pod captures
// nothing: the listener opens no port there.
func (a *analysis) captureModes() {
	for _, o := range a.of(kinds.Sidecar) {
		spec := o.Spec.(*networkingv1.Sidecar)
		for i, l := range spec.Ingress {
			if l.CaptureMode != networkingv1alpha3.CaptureMode_IPTABLES {
				continue
			}
			pod := a.capturingNothing(o.Namespace, spec.GetWorkloadSelector().GetLabels())
			if pod == nil {
				break // nor do the other listeners have one
			}
			a.report(o, diag.Warning, codeNoEffect, indexed("spec.ingress", i)+".captureMode", "remove it: each proxy then does what fits its mode",
				"the proxy of %s captures no traffic, as its interception mode is NONE: port %d is not open there", pod.object,
				l.GetPort().GetNumber())
		}
	}
}

// capturingNothing returns the first Pod that a Sidecar selects and whose proxy captures nothing, or nil.
func (a *analysis) capturingNothing(namespace string, selector map[string]string) *workload {
	spaces := []string{namespace}
	if namespace == a.root {
		spaces = a.namespaces
	}
	for _, ns := range spaces {
		for w := range a.selected(ns, selector) {
			if w.pod == nil || !a.hasProxy(w) {
				continue
			}
			mode := cmp.Or(w.object.Annotations[names.AnnotationInterceptionMode], a.mesh.GetDefaultConfig().GetInterceptionMode().String())
			if mode == string(node.None) {
				return w
			}
		}
	}
	return nil
}
