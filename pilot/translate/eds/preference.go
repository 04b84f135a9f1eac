package eds

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"
	corev1 "k8s.io/api/core/v1"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/scope/traffic"
	"github.com/istiod-lite/istiod-lite/registry"
)

// Preference is how a cluster prefers endpoints by where they run. The settings of its rule decide alone; or else the
// service's traffic distribution; or else the mesh's settings, where those of zones override those of localities. With
// the zero Preference all endpoints are equal.
type Preference struct {
	locality     *networkingv1alpha3.LocalityLoadBalancerSetting
	zones        *networkingv1alpha3.ZoneAwareLoadBalancerSetting
	distribution string // the service's
	ejects       bool   // there is outlier detection
}

// PreferenceOf returns the preference among the endpoints of a service under a policy.
func PreferenceOf(m *mesh.Config, s *registry.Service, p traffic.Policy) Preference {
	f := Preference{ejects: p.OutlierDetection != nil}
	inCluster := s.Resolution.EndpointsInCluster()
	switch l, z := p.LoadBalancer.GetLocalityLbSetting(), p.LoadBalancer.GetZoneAwareLbSetting(); {
	case z != nil:
		f.zones = z
	case l != nil:
		f.locality = l
	case s.TrafficDist != "" && !inCluster:
		f.distribution = s.TrafficDist
	case m.GetZoneAwareLbSetting() != nil:
		f.zones = m.GetZoneAwareLbSetting()
	default:
		f.locality = m.GetLocalityLbSetting()
	}
	if f.locality != nil && f.locality.Enabled != nil && !f.locality.Enabled.Value {
		f.locality = nil
	}
	return f
}

// routesByZone reports whether clients prefer their own zone as far as its share of the endpoints allows.
func (f Preference) routesByZone() bool {
	return f.zones != nil && (f.zones.Enabled == nil || f.zones.Enabled.Value)
}

// failsOver reports whether endpoints that are far stand in for close ones that fail.
func (f Preference) failsOver() bool {
	return f.locality != nil && f.ejects && len(f.locality.Distribute) == 0
}

// placed reports whether an assignment depends on where the client runs.
func (f Preference) placed() bool {
	return f.distribution != "" || f.routesByZone() || f.failsOver() || len(f.locality.GetDistribute()) > 0
}

// Apply sets how Envoy weighs localities against each other.
func (f Preference) Apply(c *clusterv3.Cluster_CommonLbConfig) {
	failover := len(f.locality.GetFailover())+len(f.locality.GetFailoverPriority()) > 0
	switch {
	case f.zones != nil:
		config := &clusterv3.Cluster_CommonLbConfig_ZoneAwareLbConfig{}
		if n := f.zones.MinClusterSize; n != nil {
			config.MinClusterSize = wrapperspb.UInt64(uint64(n.Value))
		}
		if !f.routesByZone() {
			config.RoutingEnabled = &typev3.Percent{}
		}
		c.LocalityConfigSpecifier = &clusterv3.Cluster_CommonLbConfig_ZoneAwareLbConfig_{ZoneAwareLbConfig: config}
	case f.distribution != "", len(f.locality.GetDistribute()) > 0, f.failsOver() && failover:
		c.LocalityConfigSpecifier = &clusterv3.Cluster_CommonLbConfig_LocalityWeightedLbConfig_{
			LocalityWeightedLbConfig: &clusterv3.Cluster_CommonLbConfig_LocalityWeightedLbConfig{},
		}
	}
}

// topologyOf returns what of a client's place the preference depends on. Clients for which it is equal get equal
// assignments.
func (f Preference) topologyOf(p place, cluster string) topology {
	switch {
	case f.distribution == corev1.ServiceTrafficDistributionPreferSameNode:
		return topology{by: byNode, locality: p.location.Locality, network: p.location.Network, node: p.node, cluster: cluster}
	case f.distribution != "":
		l := registry.Locality{Region: p.location.Locality.Region, Zone: p.location.Locality.Zone} // nothing below the zone counts
		return topology{by: byZone, locality: l, network: p.location.Network}
	case f.routesByZone():
		t, _ := failoverTopology(f.zones.Failover, p.location.Locality.Region)
		t.by, t.locality.Region, t.labels = byRegion, p.location.Locality.Region, priorityLabels(f.zones.FailoverPriority, p, cluster)
		return t
	case f.failsOver():
		t, ok := failoverTopology(f.locality.Failover, p.location.Locality.Region)
		if !ok && len(f.locality.FailoverPriority) > 0 {
			return topology{by: byLabels, labels: priorityLabels(f.locality.FailoverPriority, p, cluster)}
		}
		t.by, t.locality = byLocality, p.location.Locality
		return t
	}
	for _, d := range f.locality.GetDistribute() {
		if matches(d.From, p.location.Locality) {
			return topology{by: byShare, share: d}
		}
	}
	return topology{}
}

// failoverTopology returns a topology with the region that is to stand in for a client's, and reports whether there are
// any such settings at all.
func failoverTopology[F interface {
	GetFrom() string
	GetTo() string
}](settings []F, region string) (t topology, any bool) {
	for _, s := range settings {
		if s.GetFrom() == region {
			t.failover = cmp.Or(t.failover, s.GetTo())
		}
	}
	return t, len(settings) > 0
}

// priorityLabels returns the labels that endpoints should have, the most important first: with the value written in a
// failover priority, or else the client's own.
func priorityLabels(list []string, p place, cluster string) frozen.List[cohort.Label] {
	own := registry.Labels{Own: map[string]string{}, Place: registry.Place{Locality: p.location.Locality, Network: p.location.Network, Cluster: cluster, Node: p.node}}
	for label := range p.location.Labels.All {
		own.Own[label.Name] = label.Value
	}
	var labels []cohort.Label
	for _, text := range list {
		name, value, ok := strings.Cut(text, "=")
		if !ok {
			value = own.Get(name)
		}
		labels = append(labels, cohort.Label{Name: name, Value: value})
	}
	return frozen.ListOf(labels...)
}

// matches reports whether a locality is covered by a pattern: region/zone/subzone, where what follows a star, or is not
// written, may be anything.
func matches(pattern string, l registry.Locality) bool {
	have := []string{l.Region, l.Zone, l.SubZone}
	for i, part := range strings.SplitN(pattern, "/", len(have)) {
		if part == "*" {
			return true
		}
		if part != have[i] {
			return false
		}
	}
	return true
}

// shares returns the weights of localities by the weights of patterns. Those that one pattern covers divide its weight
// by their own. Others have none.
func shares(d *networkingv1alpha3.LocalityLoadBalancerSetting_Distribute, localities []registry.Locality, own func(registry.Locality) uint32) map[registry.Locality]uint32 {
	out := map[registry.Locality]uint32{}
	for _, p := range slices.Sorted(maps.Keys(d.To)) {
		var covered []registry.Locality
		var sum uint64
		for _, l := range localities {
			if _, ok := out[l]; !ok && own(l) > 0 && matches(p, l) {
				covered = append(covered, l)
				sum += uint64(own(l))
			}
		}
		for _, l := range covered {
			out[l] = uint32((uint64(d.To[p])*uint64(own(l)) + sum - 1) / sum)
		}
	}
	return out
}
