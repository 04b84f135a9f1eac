package grpc

import (
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	utilizationv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/client_side_weighted_round_robin/v3"
	roundrobinv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"
	localityv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/wrr_locality/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// TestOutlierDetection reduces the outlier detection of Envoys to what gRPC knows: the share of failures.
func TestOutlierDetection(t *testing.T) {
	for _, c := range []struct {
		name                     string
		of                       *clusterv3.OutlierDetection
		threshold, hosts, volume uint32 // 0 for the defaults of gRPC, or if nothing is ejected
	}{
		{"none", nil, 0, 0, 0},
		{"consecutive errors", &clusterv3.OutlierDetection{Consecutive_5Xx: envoy.UInt32(3)}, 85, 1, 3},
		{"no errors", &clusterv3.OutlierDetection{EnforcingConsecutive_5Xx: envoy.UInt32(0)}, 0, 0, 0},
		{"a share of failures before consecutive errors", &clusterv3.OutlierDetection{Consecutive_5Xx: envoy.UInt32(3),
			FailurePercentageThreshold: envoy.UInt32(40), EnforcingFailurePercentage: envoy.UInt32(100)}, 40, 0, 0},
		{"a share of failures that ejects nothing", &clusterv3.OutlierDetection{Consecutive_5Xx: envoy.UInt32(3),
			FailurePercentageThreshold: envoy.UInt32(0), EnforcingFailurePercentage: envoy.UInt32(0)}, 85, 1, 3},
	} {
		d := outlierDetection(c.of)
		threshold, hosts, volume := d.GetFailurePercentageThreshold().GetValue(), d.GetFailurePercentageMinimumHosts().GetValue(),
			d.GetFailurePercentageRequestVolume().GetValue()
		if threshold != c.threshold || hosts != c.hosts || volume != c.volume {
			t.Errorf("%s: %d %% of %d calls to %d endpoints, want %d %% of %d to %d", c.name, threshold, volume, hosts,
				c.threshold, c.volume, c.hosts)
		}
		if enforced := d.GetEnforcingFailurePercentage().GetValue() == 100; enforced != (c.threshold > 0) {
			t.Errorf("%s: enforced: %v", c.name, enforced)
		}
	}
}

// TestByUtilization: gRPC knows the policy of load reports only within a policy that chooses a locality, and some
// applications do not know it.
func TestByUtilization(t *testing.T) {
	policy := func(m proto.Message) *clusterv3.LoadBalancingPolicy {
		return &clusterv3.LoadBalancingPolicy{Policies: []*clusterv3.LoadBalancingPolicy_Policy{{
			TypedExtensionConfig: &corev3.TypedExtensionConfig{TypedConfig: envoy.Any(m)},
		}}}
	}
	reports := policy(&utilizationv3.ClientSideWeightedRoundRobin{ErrorUtilizationPenalty: wrapperspb.Float(0.5)})
	for name, of := range map[string]*clusterv3.LoadBalancingPolicy{
		"alone": reports, "within a locality": policy(&localityv3.WrrLocality{EndpointPickingPolicy: reports}),
	} {
		var within localityv3.WrrLocality
		got := byUtilization(of).GetPolicies()
		if len(got) != 1 || got[0].GetTypedExtensionConfig().GetTypedConfig().UnmarshalTo(&within) != nil {
			t.Fatalf("%s: %v", name, got)
		}
		inner := within.GetEndpointPickingPolicy().GetPolicies()
		if len(inner) != 2 || !proto.Equal(inner[0], reports.GetPolicies()[0]) ||
			!inner[1].GetTypedExtensionConfig().GetTypedConfig().MessageIs(&roundrobinv3.RoundRobin{}) {
			t.Errorf("%s: %v", name, inner)
		}
	}
}
