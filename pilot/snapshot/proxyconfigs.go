package snapshot

import (
	"slices"

	networkingv1beta1 "istio.io/api/networking/v1beta1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// ProxyConfigs returns the ProxyConfigs that apply to a workload: the ones without a selector in the root namespace and
// in its own namespace, and the one that selects it. The oldest takes precedence.
func (s *Snapshot) ProxyConfigs(
	namespace string, labels map[string]string,
) (whole []*networkingv1beta1.ProxyConfig, selecting *networkingv1beta1.ProxyConfig) {
	first := func(namespace string, wanted func(selector map[string]string) bool) *networkingv1beta1.ProxyConfig {
		for _, o := range s.Objects(kinds.ProxyConfig, namespace) {
			if p, ok := o.Spec.(*networkingv1beta1.ProxyConfig); ok && wanted(p.GetSelector().GetMatchLabels()) {
				return p
			}
		}
		return nil
	}
	for _, ns := range slices.Compact([]string{s.RootNamespace(), namespace}) {
		if p := first(ns, func(selector map[string]string) bool { return len(selector) == 0 }); p != nil {
			whole = append(whole, p)
		}
	}
	return whole, first(namespace, func(selector map[string]string) bool { return len(selector) > 0 && kinds.Selects(selector, labels) })
}
