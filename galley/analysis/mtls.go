package analysis

import (
	corev1 "k8s.io/api/core/v1"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"
	securityv1 "istio.io/api/security/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// mtls reports DestinationRules whose TLS settings contradict the PeerAuthentication of the host's namespace.
// PeerAuthentications with a selector are ignored.
func (a *analysis) mtls() {
	for _, o := range a.rules {
		spec := o.Spec.(*networkingv1.DestinationRule)
		tls := spec.GetTrafficPolicy().GetTls()
		if tls == nil {
			continue
		}
		for _, h := range a.hosts[names.FQDN(spec.Host, o.Namespace, a.domain)] {
			service, ok := h.object.Spec.(*corev1.Service)
			if !ok || service.Spec.Type == corev1.ServiceTypeExternalName {
				continue
			}
			wanted, by := a.peerMode(h.object.Namespace)
			if wanted == securityv1.PeerAuthentication_MutualTLS_STRICT && !a.proxied(h.object.Namespace, service.Spec.Selector) {
				continue // the namespace does not require TLS
			}
			mutual := tls.Mode == networkingv1alpha3.ClientTLSSettings_ISTIO_MUTUAL
			if wanted == securityv1.PeerAuthentication_MutualTLS_STRICT && !mutual ||
				wanted == securityv1.PeerAuthentication_MutualTLS_DISABLE && mutual {
				a.report(o, diag.Warning, codeMTLS, "spec.trafficPolicy.tls.mode", "remove tls: proxies then do what the other end takes",
					"mode %s contradicts %s, which has mode %s for the workloads of %s: connections are refused", tls.Mode, by, wanted, h.name)
				break
			}
		}
	}
}

// peerMode returns the mode of mutual TLS of a namespace and the PeerAuthentication that sets it, or nil. It does not
// read PeerAuthentications with a selector.
func (a *analysis) peerMode(namespace string) (securityv1.PeerAuthentication_MutualTLS_Mode, *kinds.Object) {
	if a.modes == nil {
		a.modes = map[string]*kinds.Object{}
		for _, o := range a.of(kinds.PeerAuthentication) {
			if len(o.Spec.(*securityv1.PeerAuthentication).GetSelector().GetMatchLabels()) == 0 && a.modes[o.Namespace] == nil {
				a.modes[o.Namespace] = o
			}
		}
	}
	for _, where := range []string{namespace, a.root} {
		if o := a.modes[where]; o != nil {
			if m := o.Spec.(*securityv1.PeerAuthentication).GetMtls().GetMode(); m != securityv1.PeerAuthentication_MutualTLS_UNSET {
				return m, o
			}
		}
	}
	return securityv1.PeerAuthentication_MutualTLS_PERMISSIVE, nil
}

// proxied reports whether a workload of a Service has a proxy. In files without its Pods, for example with Deployments,
// the injection setting of the namespace decides.
func (a *analysis) proxied(namespace string, selector map[string]string) bool {
	s := a.selection(namespace, selector)
	return s.proxied || a.options.Whole && s.workloads == 0 && len(selector) > 0 && a.injectionOf(namespace) == injected
}
