package analysis

import (
	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// ingressTLS reports ingress listeners of Sidecars whose TLS does nothing, because no PeerAuthentication turns the
// mesh's own mutual TLS off at their port.
func (a *analysis) ingressTLS() {
	for _, o := range a.of(kinds.Sidecar) {
		spec := o.Spec.(*networkingv1.Sidecar)
		for i, l := range spec.Ingress {
			port := l.GetPort().GetNumber()
			if l.Tls == nil || a.turnedOffBy(o.Namespace, spec.GetWorkloadSelector().GetLabels(), port) != nil {
				continue
			}
			a.report(o, diag.Warning, codeNoEffect, indexed("spec.ingress", i)+".tls",
				"add a PeerAuthentication with the selector of the Sidecar and mode DISABLE for the port",
				"no PeerAuthentication turns mutual TLS off at port %d of all workloads of the Sidecar: "+
					"where none does, the port accepts only the mesh's own mutual TLS", port)
		}
	}
}
