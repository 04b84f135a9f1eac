package analysis

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"

	securityv1 "istio.io/api/security/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// tokens reports issuers that a RequestAuthentication has twice, and ports of the workloads that it selects on which
// tokens cannot be read, for they are not HTTP.
func (a *analysis) tokens() {
	type portOf struct {
		service *kinds.Object
		port    int
	}
	reported := map[portOf]bool{}
	for _, o := range a.of(kinds.RequestAuthentication) {
		spec := o.Spec.(*securityv1.RequestAuthentication)
		issuers := map[string]int{}
		for i, r := range spec.JwtRules {
			if first, known := issuers[r.Issuer]; known {
				a.report(o, diag.Warning, codeIssuer, indexed("spec.jwtRules", i)+".issuer", "merge the two",
					"%s has the issuer %q too: which of the two judges a token depends on where the token is", indexed("spec.jwtRules", first), r.Issuer)
			} else {
				issuers[r.Issuer] = i
			}
		}
		if len(spec.JwtRules) == 0 {
			continue
		}
		labels := spec.GetSelector().GetMatchLabels()
		for _, s := range a.services {
			service := &s.Spec.(*corev1.Service).Spec
			if len(service.Selector) == 0 || service.Type == corev1.ServiceTypeExternalName || o.Namespace != a.root && o.Namespace != s.Namespace || !a.bothSelect(s.Namespace, labels, service.Selector) {
				continue
			}
			for i := range service.Ports {
				p, key := &service.Ports[i], portOf{s, i}
				protocol := protocolOf(p)
				if cmp.Or(p.Protocol, corev1.ProtocolTCP) != corev1.ProtocolTCP || protocol == "" || isHTTP(protocol) || reported[key] {
					continue
				}
				reported[key] = true
				a.report(s, diag.Info, codeTokenPort, indexed("spec.ports", i)+".name", "name it for HTTP, such as http-"+p.Name, "%s applies to these workloads, and port %d is %s: tokens are not read there", o, p.Port, protocol)
			}
		}
	}
}

// bothSelect reports whether a workload of a namespace has the labels of both selectors.
func (a *analysis) bothSelect(namespace string, first, second map[string]string) bool {
	if len(first) == 0 {
		return true
	}
	for w := range a.selected(namespace, second) {
		if kinds.Selects(first, w.labels) {
			return true
		}
	}
	return false
}
