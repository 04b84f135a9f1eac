package destinationrule

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
	"github.com/istiod-lite/istiod-lite/pilot/scope/traffic"
	"github.com/istiod-lite/istiod-lite/registry"
)

// Choice implements feature.Destination. The settings of the rule take precedence over the service's traffic
// distribution, and that over the mesh's settings, where settings for zones override those for localities. With
// minHealthPercent Envoy calls all endpoints, also unhealthy ones, while few of them are healthy: then unhealthy ones
// are left out. As in istiod, the mesh's default policy is not consulted.
func (policies) Choice(m *mesh.Config, s *registry.Service, p traffic.Policy) feature.Choice {
	c := feature.Choice{ReadyOnly: p.OutlierDetection.GetMinHealthPercent() > 0}
	switch {
	case p.IsMutual():
		c.TLS = feature.TLSOfMesh
	case p.TLS != nil:
		c.TLS = feature.TLSOfPolicy
	}
	switch l, z := p.LoadBalancer.GetLocalityLbSetting(), p.LoadBalancer.GetZoneAwareLbSetting(); {
	case z != nil:
		c.Zones = z
	case l != nil:
		c.Locality = l
	case s.TrafficDist != "" && !s.Resolution.EndpointsInCluster():
		c.Distribution = s.TrafficDist
	case m.GetZoneAwareLbSetting() != nil:
		c.Zones = m.GetZoneAwareLbSetting()
	default:
		c.Locality = m.GetLocalityLbSetting()
	}
	if c.Locality != nil && c.Locality.Enabled != nil && !c.Locality.Enabled.Value {
		c.Locality = nil
	}
	c.FailsOver = c.Locality != nil && p.OutlierDetection != nil && len(c.Locality.Distribute) == 0
	return c
}

// applyChoice sets how Envoy weighs localities against each other. Beside a load balancing policy Envoy rejects such
// settings. The policy is then used within a locality that is chosen by weight, and zones are not preferred.
func applyChoice(c *clusterv3.Cluster, by feature.Choice) {
	failover := len(by.Locality.GetFailover())+len(by.Locality.GetFailoverPriority()) > 0
	switch {
	case by.Zones != nil && c.LoadBalancingPolicy != nil:
	case by.Zones != nil:
		config := &clusterv3.Cluster_CommonLbConfig_ZoneAwareLbConfig{}
		if n := by.Zones.MinClusterSize; n != nil {
			config.MinClusterSize = wrapperspb.UInt64(uint64(n.Value))
		}
		if !by.RoutesByZone() {
			config.RoutingEnabled = &typev3.Percent{}
		}
		c.CommonLbConfig.LocalityConfigSpecifier = &clusterv3.Cluster_CommonLbConfig_ZoneAwareLbConfig_{ZoneAwareLbConfig: config}
	case by.Distribution != "", len(by.Locality.GetDistribute()) > 0, by.FailsOver && failover:
		if p := c.LoadBalancingPolicy; p != nil {
			c.LoadBalancingPolicy = envoy.WithinLocality(p)
			return
		}
		c.CommonLbConfig.LocalityConfigSpecifier = &clusterv3.Cluster_CommonLbConfig_LocalityWeightedLbConfig_{
			LocalityWeightedLbConfig: &clusterv3.Cluster_CommonLbConfig_LocalityWeightedLbConfig{},
		}
	}
}
