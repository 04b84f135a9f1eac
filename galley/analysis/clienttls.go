package analysis

import (
	"iter"
	"slices"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"
)

// trafficPolicy is a traffic policy of a DestinationRule.
type trafficPolicy struct {
	*networkingv1alpha3.TrafficPolicy
	path   string
	subset string
	labels map[string]string // of the subset; nil for the policy of the whole rule
	own    map[uint32]int    // index of the settings of each port that has some
}

// tlsPolicies yields the traffic policies of a DestinationRule that say something about TLS.
func tlsPolicies(spec *networkingv1.DestinationRule) iter.Seq[trafficPolicy] {
	return func(yield func(trafficPolicy) bool) {
		one := func(policy *networkingv1alpha3.TrafficPolicy, path, subset string, labels map[string]string) bool {
			p := trafficPolicy{policy, path + ".trafficPolicy", subset, labels, map[uint32]int{}}
			says := policy.GetTls() != nil
			for i, s := range policy.GetPortLevelSettings() {
				p.own[s.GetPort().GetNumber()] = i
				says = says || s.Tls != nil
			}
			return !says || yield(p)
		}
		if !one(spec.TrafficPolicy, "spec", "", nil) {
			return
		}
		for i, s := range spec.Subsets {
			if !one(s.TrafficPolicy, indexed("spec.subsets", i), s.Name, s.Labels) {
				return
			}
		}
	}
}

// says reports whether a policy sets a mode, for all of its ports or for one.
func (p trafficPolicy) says(mode networkingv1alpha3.ClientTLSSettings_TLSmode) bool {
	return p.GetTls() != nil && p.Tls.Mode == mode || slices.ContainsFunc(p.GetPortLevelSettings(),
		func(s *networkingv1alpha3.TrafficPolicy_PortTrafficPolicy) bool {
			return s.Tls != nil && s.Tls.Mode == mode
		})
}

// tls returns the TLS of a policy for a port, or nil, and the field of its mode. Settings of the port replace those of
// the whole policy.
func (p trafficPolicy) tls(port uint32) (tls *networkingv1alpha3.ClientTLSSettings, mode string) {
	if i, known := p.own[port]; known {
		return p.PortLevelSettings[i].Tls, indexed(p.path+".portLevelSettings", i) + ".tls.mode"
	}
	return p.Tls, p.path + ".tls.mode"
}

// selector returns the labels of the workloads of a Service with a selector that the policy is for.
func (p trafficPolicy) selector(service map[string]string) map[string]string {
	if len(service) == 0 {
		return service
	}
	return joined(service, p.labels)
}
