package traffic

import (
	"slices"
	"strings"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/mesh"
)

// Places reports whether a rule prefers endpoints by location, and returns the labels by which it sorts them. Outlier
// detection is enough, because distant endpoints replace ejected ones.
func Places(r *networkingv1.DestinationRule) (places bool, labels []string) {
	add := func(lb *networkingv1alpha3.LoadBalancerSettings, o *networkingv1alpha3.OutlierDetection) {
		places = places || o != nil || lb.GetLocalityLbSetting() != nil || lb.GetZoneAwareLbSetting() != nil
		labels = append(labels, PriorityLabels(lb.GetLocalityLbSetting().GetFailoverPriority(),
			lb.GetZoneAwareLbSetting().GetFailoverPriority())...)
	}
	addAll := func(t *networkingv1alpha3.TrafficPolicy) {
		add(t.GetLoadBalancer(), t.GetOutlierDetection())
		for _, p := range t.GetPortLevelSettings() {
			add(p.GetLoadBalancer(), p.GetOutlierDetection())
		}
	}
	addAll(r.GetTrafficPolicy())
	for _, s := range r.GetSubsets() {
		addAll(s.GetTrafficPolicy())
	}
	slices.Sort(labels)
	return places, slices.Compact(labels)
}

// PassesThrough reports whether a rule sends some connections to the address that was called.
func PassesThrough(r *networkingv1.DestinationRule) bool {
	return balances(r.GetTrafficPolicy(), Passthrough) || slices.ContainsFunc(r.GetSubsets(), func(s *networkingv1alpha3.Subset) bool {
		return balances(s.GetTrafficPolicy(), Passthrough)
	})
}

// Passthrough reports whether a load balancer sends connections to the address that was called.
func Passthrough(lb *networkingv1alpha3.LoadBalancerSettings) bool {
	return lb.GetSimple() == networkingv1alpha3.LoadBalancerSettings_PASSTHROUGH
}

// balances reports whether match returns true for a load balancer of a policy: its own, or one of a port.
func balances(t *networkingv1alpha3.TrafficPolicy, match func(*networkingv1alpha3.LoadBalancerSettings) bool) bool {
	return match(t.GetLoadBalancer()) || slices.ContainsFunc(t.GetPortLevelSettings(),
		func(p *networkingv1alpha3.TrafficPolicy_PortTrafficPolicy) bool {
			return match(p.GetLoadBalancer())
		})
}

// MeshPlaces reports whether endpoints are preferred by location even without a rule that says so.
func MeshPlaces(m *mesh.Config) bool {
	return len(m.GetLocalityLbSetting().GetDistribute()) > 0 || m.GetZoneAwareLbSetting() != nil ||
		m.GetDefaultTrafficPolicy().GetOutlierDetection() != nil
}

// PriorityLabels returns the names of labels in lists of failover priorities that have no value of their own and so use
// the proxy's.
func PriorityLabels(lists ...[]string) (labels []string) {
	for _, list := range lists {
		for _, l := range list {
			if !strings.Contains(l, "=") {
				labels = append(labels, l)
			}
		}
	}
	return labels
}
