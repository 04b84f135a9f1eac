package envoy

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	localityv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/wrr_locality/v3"
	"google.golang.org/protobuf/proto"
)

// BalancingPolicy returns a load balancing policy of Envoy. Its name is without Envoy's prefix.
func BalancingPolicy(name string, config proto.Message) *clusterv3.LoadBalancingPolicy {
	return &clusterv3.LoadBalancingPolicy{Policies: []*clusterv3.LoadBalancingPolicy_Policy{{
		TypedExtensionConfig: &corev3.TypedExtensionConfig{Name: "envoy.load_balancing_policies." + name, TypedConfig: Any(config)},
	}}}
}

// WithinLocality returns a policy that chooses a locality by weight, and in it an endpoint by another policy.
func WithinLocality(p *clusterv3.LoadBalancingPolicy) *clusterv3.LoadBalancingPolicy {
	return BalancingPolicy("wrr_locality", &localityv3.WrrLocality{EndpointPickingPolicy: p})
}
