package destinationrule

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	utilizationv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/client_side_weighted_round_robin/v3"
	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/common/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// byUtilization returns the policy by which the load reports of endpoints decide their weights. Envoy's own default
// would weigh errors.
func byUtilization(u *networkingv1alpha3.LoadBalancerSettings_BackendUtilizationLB,
	slow *clusterv3.Cluster_SlowStartConfig) *clusterv3.LoadBalancingPolicy {
	p := &utilizationv3.ClientSideWeightedRoundRobin{
		BlackoutPeriod: u.WeightStabilizationPeriod, WeightExpirationPeriod: u.WeightExpirationPeriod, WeightUpdatePeriod: u.WeightUpdatePeriod,
		ErrorUtilizationPenalty:            wrapperspb.Float(float32(u.ErrorUtilizationPenaltyPercent) / 100),
		MetricNamesForComputingUtilization: u.MetricNamesForComputingUtilization,
	}
	if slow != nil {
		p.SlowStartConfig = &commonv3.SlowStartConfig{SlowStartWindow: slow.SlowStartWindow, Aggression: slow.Aggression,
			MinWeightPercent: slow.MinWeightPercent}
	}
	return envoy.BalancingPolicy("client_side_weighted_round_robin", p)
}
