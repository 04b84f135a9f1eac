package feature_test

import (
	"slices"
	"testing"

	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// TestUnsupported: each field is one finding, at the first place where it is set, whatever else is set beside it. What
// is in a field without support is not looked at.
func TestUnsupported(t *testing.T) {
	settings := &networkingv1alpha3.ConnectionPoolSettings{Http: &networkingv1alpha3.ConnectionPoolSettings_HTTPSettings{MaxRetries: 1}}
	subset := &networkingv1alpha3.Subset{Name: "v1", Labels: map[string]string{"a.b": "c"},
		TrafficPolicy: &networkingv1alpha3.TrafficPolicy{ConnectionPool: settings}}
	rule := &networkingv1alpha3.DestinationRule{
		Host: "web", ExportTo: []string{"."}, Subsets: []*networkingv1alpha3.Subset{{Name: "v0"}, subset, subset},
		TrafficPolicy: &networkingv1alpha3.TrafficPolicy{Tunnel: &networkingv1alpha3.TrafficPolicy_TunnelSettings{Protocol: "CONNECT",
			TargetHost: "x"}},
	}
	lacks := map[string]string{
		"DestinationRule.host": "a", "DestinationRule.exportTo": "b", "TrafficPolicy.tunnel": "c", "TunnelSettings.protocol": "inside",
		"HTTPSettings.maxRetries": "d",
		"Subset.labels":           "e", "Subset.workloadSelector": "not set",
	}
	var got []string
	for _, d := range feature.Unsupported("spec", rule, func(field string) (message, fix string) { return lacks[field], "" }) {
		got = append(got, d.Field)
	}
	want := []string{"spec.exportTo", "spec.host", "spec.subsets[1].labels",
		"spec.subsets[1].trafficPolicy.connectionPool.http.maxRetries", "spec.trafficPolicy.tunnel"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
