package analysis

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	securityv1 "istio.io/api/security/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/protocols"
)

// autoMTLS reports ports of Services to which sidecars send mutual TLS of the mesh by themselves, although the proxy of
// the workload does not end it: annotations keep the port from the proxy, or the Service is headless and a
// PeerAuthentication turns mutual TLS off for the workload or its port. It also reports workloads that demand mutual
// TLS where sidecars send none.
func (a *analysis) autoMTLS() {
	if !a.mesh.AutoMTLS() {
		return
	}
	for _, o := range a.services {
		spec := &o.Spec.(*corev1.Service).Spec
		if len(spec.Selector) == 0 || spec.Type == corev1.ServiceTypeExternalName {
			continue
		}
		if mode, _ := a.peerMode(o.Namespace); mode == securityv1.PeerAuthentication_MutualTLS_DISABLE {
			continue
		}
		pods := a.selection(o.Namespace, spec.Selector)
		for i := range spec.Ports {
			p := &spec.Ports[i]
			to := hostPort{names.FQDN(o.Name, o.Namespace, a.domain), uint32(p.Port)} //nolint:gosec // validated
			if protocols.OfPort(p) == protocols.UDP || a.clientTLS(to).any {
				continue
			}
			const fix = "add a DestinationRule with tls.mode DISABLE for this port"
			if w := pods.bypassing; w != nil && !a.hasOwnPeerMode(o.Namespace, w.labels) {
				if annotation := names.LeftToApplication(w.object.Annotations, targetPort(p, w)); annotation != "" {
					a.report(o, diag.Warning, codeTLSMismatch, indexed("spec.ports", i), fix,
						"%s takes connections to port %d past its proxy, by the annotation %s, and sidecars send it mutual TLS of the mesh, "+
							"which the application does not read: requests get 503", w.object, targetPort(p, w), annotation)
				}
			}
			if w := pods.secured; w != nil && spec.ClusterIP == corev1.ClusterIPNone {
				if by := a.turnedOffBy(o.Namespace, w.labels, targetPort(p, w)); by != nil {
					a.report(o, diag.Warning, codeTLSMismatch, indexed("spec.ports", i), fix,
						"%s turns mutual TLS off at port %d of %s, which sidecars do not see for a headless Service: they send mutual TLS of the mesh, "+
							"which the application does not read, and connections fail", by, targetPort(p, w), w.object)
				}
			}
		}
	}
	for _, o := range a.of(kinds.PeerAuthentication) {
		a.unreachedStrict(o)
	}
}

// hasInboundPorts reports whether annotations of a Pod say which ports its proxy takes. An application of gRPC without
// a proxy takes all of its ports itself.
func hasInboundPorts(o *kinds.Object) bool {
	_, included := o.Annotations[names.AnnotationIncludeInboundPorts]
	return (included || o.Annotations[names.AnnotationExcludeInboundPorts] != "") &&
		!strings.Contains(o.Annotations[names.AnnotationTemplates], "grpc")
}

// unreachedStrict reports a PeerAuthentication of workloads with mode STRICT in a namespace where the mode is DISABLE:
// sidecars look at the mode of the namespace, and send plaintext.
func (a *analysis) unreachedStrict(o *kinds.Object) {
	spec := o.Spec.(*securityv1.PeerAuthentication)
	labels := spec.GetSelector().GetMatchLabels()
	mode, by := a.peerMode(o.Namespace)
	if len(labels) == 0 || o.Namespace == a.root || spec.GetMtls().GetMode() != securityv1.PeerAuthentication_MutualTLS_STRICT ||
		mode != securityv1.PeerAuthentication_MutualTLS_DISABLE {
		return
	}
	for s := range a.servicesUnder(o.Namespace, labels) {
		host := names.FQDN(s.Name, s.Namespace, a.domain)
		for _, p := range s.Spec.(*corev1.Service).Spec.Ports {
			if a.clientTLS(hostPort{host, uint32(p.Port)}).any { //nolint:gosec // validated
				continue
			}
			a.report(o, diag.Warning, codeMTLS, "spec.mtls.mode",
				"give "+by.String()+" another mode, or add a DestinationRule with tls.mode ISTIO_MUTUAL for "+host,
				"%s has mode DISABLE for the namespace, so sidecars send plaintext to port %d of %s, and its workloads refuse it", by, p.Port, s)
			return
		}
	}
}
