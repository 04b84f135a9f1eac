package traffic

import (
	"slices"
	"strings"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/mesh"
)

// Places reports whether a rule prefers endpoints by where they run, and returns the labels by which it sorts them.
// Outlier detection is enough: with it endpoints that are far stand in for ejected ones.
func Places(r *networkingv1.DestinationRule) (places bool, labels []string) {
	add := func(lb *networkingv1alpha3.LoadBalancerSettings, o *networkingv1alpha3.OutlierDetection) {
		places = places || o != nil || lb.GetLocalityLbSetting() != nil || lb.GetZoneAwareLbSetting() != nil
		labels = append(labels, PriorityLabels(lb.GetLocalityLbSetting().GetFailoverPriority(), lb.GetZoneAwareLbSetting().GetFailoverPriority())...)
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

// PassesThrough reports whether some connections that a rule is for go on to the address that was called.
func PassesThrough(r *networkingv1.DestinationRule) bool {
	return balances(r.GetTrafficPolicy(), Passthrough) || slices.ContainsFunc(r.GetSubsets(), func(s *networkingv1alpha3.Subset) bool { return balances(s.GetTrafficPolicy(), Passthrough) })
}

// Passthrough reports whether a load balancer has connections go on to the address that was called.
func Passthrough(lb *networkingv1alpha3.LoadBalancerSettings) bool {
	return lb.GetSimple() == networkingv1alpha3.LoadBalancerSettings_PASSTHROUGH
}

// balances reports whether some load balancer of a policy, its own or that of a port, is one.
func balances(t *networkingv1alpha3.TrafficPolicy, is func(*networkingv1alpha3.LoadBalancerSettings) bool) bool {
	return is(t.GetLoadBalancer()) || slices.ContainsFunc(t.GetPortLevelSettings(), func(p *networkingv1alpha3.TrafficPolicy_PortTrafficPolicy) bool {
		return is(p.GetLoadBalancer())
	})
}

// MeshPlaces reports whether endpoints are preferred by where they run without a rule that says so.
func MeshPlaces(m *mesh.Config) bool {
	return len(m.GetLocalityLbSetting().GetDistribute()) > 0 || m.GetZoneAwareLbSetting() != nil || m.GetDefaultTrafficPolicy().GetOutlierDetection() != nil
}

// PriorityLabels returns the names of the labels in lists of failover priorities whose values are the proxy's.
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
