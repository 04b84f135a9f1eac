package grpc

import (
	"math"
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	roundrobinv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"
	localityv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/wrr_locality/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/scope/traffic"
	"github.com/istiod-lite/istiod-lite/pilot/translate/cds"
	"github.com/istiod-lite/istiod-lite/pilot/translate/engine"
	"github.com/istiod-lite/istiod-lite/pilot/translate/view"
)

// Clusters makes the clusters that gRPC calls. Safe for concurrent use.
type Clusters struct {
	cache    *engine.Cache
	envoys   *cds.Clusters
	clusters *envoy.MemoTable[clusterKey]
}

// NewClusters returns Clusters that are made from the clusters of Envoys.
func NewClusters(m *envoy.Memo, c *engine.Cache, envoys *cds.Clusters) *Clusters {
	return &Clusters{cache: c, envoys: envoys, clusters: envoy.NewMemoTable(m, buildCluster)}
}

// clusterKey is the whole input of a cluster.
type clusterKey struct {
	envoys *envoy.Resource // cluster for an Envoy
	rule   traffic.Rule
	port   uint32
	mesh   *mesh.Config
}

// Get returns the clusters of a list of names.
func (m *Clusters) Get(v *view.View, c cohort.Key, list *envoy.Names) (envoy.Union, error) {
	s, err := byName(m.cache, v, client(envoy.ClusterType, c), list, func(name string) *envoy.Resource {
		n, ok := names.ParseCluster(name)
		if !ok || n.Direction != names.Outbound || n.SNIDNAT {
			return nil
		}
		full := m.envoys.Named(v, c.Client.Value(), n)
		if full == nil {
			return nil
		}
		rule, _ := v.MergedRules(c.Client.Value(), v.ScopeOf(c.Client.Value().Namespace,
			c.Client.Value().Sidecar).ServiceByHost(n.Host)).Rule(n.Subset)
		return m.clusters.Get(clusterKey{full, rule, n.Port, v.Mesh()})
	})
	return envoy.Union{Shared: s}, err
}

func buildCluster(k clusterKey) *envoy.Resource {
	var full clusterv3.Cluster
	read(k.envoys.Value(), &full)
	c := &clusterv3.Cluster{
		Name:                 full.Name,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig:     &clusterv3.Cluster_EdsClusterConfig{EdsConfig: ads(), ServiceName: full.Name},
		OutlierDetection:     outlierDetection(full.OutlierDetection),
	}
	for _, t := range full.GetCircuitBreakers().GetThresholds() {
		if n := t.GetMaxRequests(); t.Priority == corev3.RoutingPriority_DEFAULT && n != nil && n.Value != math.MaxUint32 {
			c.CircuitBreakers = &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{MaxRequests: n}}}
		}
	}
	policy := k.rule.Policy(k.port).WithDefaults(k.mesh.GetDefaultTrafficPolicy())
	setLoadBalancing(c, &full, policy.LoadBalancer)
	if e := onlyEndpoint(full.LoadAssignment); e != nil && full.GetType() != clusterv3.Cluster_STATIC {
		c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_LOGICAL_DNS}
		c.EdsClusterConfig = nil
		c.LoadAssignment = &endpointv3.ClusterLoadAssignment{ClusterName: c.Name, Endpoints: []*endpointv3.LocalityLbEndpoints{{
			LbEndpoints: []*endpointv3.LbEndpoint{{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: e}}}},
		}}}
	}
	switch policy.TLS.GetMode() {
	case networkingv1alpha3.ClientTLSSettings_DISABLE:
	case networkingv1alpha3.ClientTLSSettings_ISTIO_MUTUAL:
		c.TransportSocket = tlsSocket(&tlsv3.UpstreamTlsContext{CommonTlsContext: meshTLS(peerNames(full.TransportSocket))})
	default:
		c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS}
		c.LoadAssignment = nil
		c.EdsClusterConfig = &clusterv3.Cluster_EdsClusterConfig{EdsConfig: ads(), ServiceName: names.BlackHoleCluster} // never in plaintext
	}
	return envoy.NewResource(c.Name, c)
}

// maxRingSize is the largest hash ring of gRPC.
const maxRingSize = 8 << 20

// setLoadBalancing sets how calls are balanced. gRPC rejects unknown policies.
func setLoadBalancing(c, full *clusterv3.Cluster, s *networkingv1alpha3.LoadBalancerSettings) {
	switch {
	case full.LoadBalancingPolicy != nil:
		c.LoadBalancingPolicy = byUtilization(full.LoadBalancingPolicy)
	case s.GetConsistentHash() != nil:
		c.LbPolicy = clusterv3.Cluster_RING_HASH
		size := full.GetRingHashLbConfig().GetMinimumRingSize().GetValue()
		if size > 0 {
			c.LbConfig = &clusterv3.Cluster_RingHashLbConfig_{RingHashLbConfig: &clusterv3.Cluster_RingHashLbConfig{
				MinimumRingSize: wrapperspb.UInt64(min(size, maxRingSize)),
			}}
		}
	case s.GetSimple() == networkingv1alpha3.LoadBalancerSettings_LEAST_REQUEST,
		s.GetSimple() == networkingv1alpha3.LoadBalancerSettings_LEAST_CONN: //nolint:staticcheck // users still write LEAST_CONN
		c.LbPolicy = clusterv3.Cluster_LEAST_REQUEST
	}
}

// byUtilization returns gRPC's form of an Envoy's policy by which load reports decide the weights of endpoints: within
// a locality that is chosen by weight. A gRPC that does not know it takes endpoints in turn.
func byUtilization(p *clusterv3.LoadBalancingPolicy) *clusterv3.LoadBalancingPolicy {
	within := &localityv3.WrrLocality{}
	if inner := p.GetPolicies()[0].GetTypedExtensionConfig().GetTypedConfig(); inner.MessageIs(within) {
		if inner.UnmarshalTo(within) == nil {
			p = within.EndpointPickingPolicy
		}
	}
	inTurn := envoy.BalancingPolicy("round_robin", &roundrobinv3.RoundRobin{})
	return envoy.WithinLocality(&clusterv3.LoadBalancingPolicy{Policies: append(slices.Clip(p.GetPolicies()), inTurn.Policies...)})
}

// Defaults of Envoy, and the values that approximate consecutive errors.
const (
	defaultConsecutive = 5
	failingPercentage  = 85
)

// outlierDetection returns what gRPC has of an Envoy's outlier detection: the share of failures, or else an
// approximation of consecutive errors by it. It returns nil if these eject nothing.
func outlierDetection(d *clusterv3.OutlierDetection) *clusterv3.OutlierDetection {
	if d == nil {
		return nil
	}
	if d.GetEnforcingFailurePercentage().GetValue() > 0 {
		return &clusterv3.OutlierDetection{
			Interval: d.Interval, BaseEjectionTime: d.BaseEjectionTime, MaxEjectionPercent: d.MaxEjectionPercent,
			EnforcingSuccessRate:       envoy.UInt32(0),
			EnforcingFailurePercentage: d.EnforcingFailurePercentage,
			FailurePercentageThreshold: d.FailurePercentageThreshold,
		}
	}
	enforced := func(e *wrapperspb.UInt32Value) bool { return e == nil || e.Value > 0 }
	calls := uint32(math.MaxUint32)
	if enforced(d.EnforcingConsecutive_5Xx) {
		calls = defaultConsecutive
		if n := d.Consecutive_5Xx; n != nil {
			calls = n.Value
		}
	}
	if n := d.ConsecutiveGatewayFailure; n != nil && enforced(d.EnforcingConsecutiveGatewayFailure) {
		calls = min(calls, n.Value)
	}
	if calls == math.MaxUint32 {
		return nil
	}
	return &clusterv3.OutlierDetection{
		Interval: d.Interval, BaseEjectionTime: d.BaseEjectionTime, MaxEjectionPercent: d.MaxEjectionPercent,
		EnforcingSuccessRate:           envoy.UInt32(0),
		EnforcingFailurePercentage:     envoy.UInt32(100),
		FailurePercentageThreshold:     envoy.UInt32(failingPercentage),
		FailurePercentageMinimumHosts:  envoy.UInt32(1),
		FailurePercentageRequestVolume: envoy.UInt32(calls),
	}
}

// onlyEndpoint returns the address of the only endpoint in a cluster, or nil unless there is exactly one.
func onlyEndpoint(a *endpointv3.ClusterLoadAssignment) *corev3.Address {
	var only *corev3.Address
	for _, l := range a.GetEndpoints() {
		for _, e := range l.LbEndpoints {
			if only != nil {
				return nil
			}
			only = e.GetEndpoint().GetAddress()
		}
	}
	if only.GetSocketAddress() == nil {
		return nil
	}
	return only
}

// peerNames returns the names that the certificate of a peer may have, from an Envoy's transport socket.
func peerNames(s *corev3.TransportSocket) []*matcherv3.StringMatcher {
	var context tlsv3.UpstreamTlsContext
	if any := s.GetTypedConfig(); any.MessageIs(&context) {
		read(any.Value, &context)
	}
	validation := context.GetCommonTlsContext().GetCombinedValidationContext().GetDefaultValidationContext()
	return validation.GetMatchSubjectAltNames() //nolint:staticcheck // the field that is sent
}

// ads returns the source of resources that come by the same stream.
func ads() *corev3.ConfigSource {
	return &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
		ResourceApiVersion: corev3.ApiVersion_V3}
}
