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

// mtls reports DestinationRules whose TLS settings contradict the PeerAuthentication of the host's namespace. It skips
// Services whose workloads a PeerAuthentication with a selector may apply to, unless it turns mutual TLS off for all of
// them.
func (a *analysis) mtls() {
	compared := comparisons{most: maxComparisons}
	for _, o := range a.rules {
		compared.begin()
		a.contradiction(o, &compared)
		a.halfRead(o, compared)
	}
}

// contradiction reports the first TLS setting of a DestinationRule that contradicts a PeerAuthentication.
func (a *analysis) contradiction(o *kinds.Object, compared *comparisons) {
	spec := o.Spec.(*networkingv1.DestinationRule)
	for policy := range tlsPolicies(spec) {
		for _, h := range a.hosts[names.FQDN(spec.Host, o.Namespace, a.domain)] {
			service, ok := h.object.Spec.(*corev1.Service)
			if !ok || service.Spec.Type == corev1.ServiceTypeExternalName {
				continue
			}
			wanted, by := a.peerMode(h.object.Namespace)
			labels := policy.selector(service.Spec.Selector)
			if wanted == securityv1.PeerAuthentication_MutualTLS_STRICT && !a.proxied(h.object.Namespace, labels) {
				continue // the namespace does not require TLS
			}
			for _, port := range h.ports {
				if !compared.more() {
					return
				}
				tls, field := policy.tls(port)
				mutual := tls.GetMode() == networkingv1alpha3.ClientTLSSettings_ISTIO_MUTUAL
				if mutual && a.hasOwnPeerMode(h.object.Namespace, labels) {
					own := a.turnedOffBy(h.object.Namespace, labels, 0)
					if own == nil || !a.proxied(h.object.Namespace, labels) {
						break
					}
					wanted, by = securityv1.PeerAuthentication_MutualTLS_DISABLE, own
				}
				if tls != nil && (wanted == securityv1.PeerAuthentication_MutualTLS_STRICT && !mutual ||
					wanted == securityv1.PeerAuthentication_MutualTLS_DISABLE && mutual) {
					if !mutual && a.hasOwnPeerMode(h.object.Namespace, labels) {
						break
					}
					a.report(o, diag.Warning, codeMTLS, field, "remove tls: proxies then do what the other end takes",
						"mode %s contradicts %s, which has mode %s for the workloads of %s: connections are refused", tls.Mode, by, wanted, h.name)
					return
				}
			}
		}
	}
}

// halfRead reports a DestinationRule whose hosts and ports were not all compared.
func (a *analysis) halfRead(o *kinds.Object, compared comparisons) {
	if compared.refused {
		a.report(o, diag.Info, codeLimit, "spec.host", "name a host, and divide its subsets among DestinationRules",
			"its pattern covers too many hosts, or they have too many ports for its subsets: not all of them are looked at")
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

// hasOwnPeerMode reports whether a PeerAuthentication with a selector may apply to workloads of a namespace with some
// labels.
func (a *analysis) hasOwnPeerMode(namespace string, labels map[string]string) bool {
	for o := range a.sharing(kinds.PeerAuthentication, namespace, labels) {
		if len(o.Spec.(*securityv1.PeerAuthentication).GetSelector().GetMatchLabels()) > 0 {
			return true
		}
	}
	return false
}

// proxied reports whether a workload of a Service has a proxy. In files without its Pods, for example with Deployments,
// the injection setting of the namespace decides.
func (a *analysis) proxied(namespace string, selector map[string]string) bool {
	s := a.selection(namespace, selector)
	return s.proxied || a.options.Whole && s.workloads == 0 && len(selector) > 0 && a.injectionOf(namespace) == injected
}
