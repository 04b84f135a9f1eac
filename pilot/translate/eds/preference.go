package eds

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	networkingv1alpha3 "istio.io/api/networking/v1alpha3"
	corev1 "k8s.io/api/core/v1"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
	"github.com/istiod-lite/istiod-lite/registry"
)

// placed reports whether an assignment depends on the location of the client.
func placed(c feature.Choice) bool {
	return c.Distribution != "" || c.RoutesByZone() || c.FailsOver || len(c.Locality.GetDistribute()) > 0
}

// topologyOf returns the part of a client's location that a choice depends on. Clients for which it is equal get equal
// assignments.
func topologyOf(c feature.Choice, p place, cluster string) topology {
	switch {
	case c.Distribution == corev1.ServiceTrafficDistributionPreferSameNode:
		return topology{by: byNode, locality: p.location.Locality, network: p.location.Network, node: p.node, cluster: cluster}
	case c.Distribution != "":
		l := registry.Locality{Region: p.location.Locality.Region, Zone: p.location.Locality.Zone} // nothing below the zone matters
		return topology{by: byZone, locality: l, network: p.location.Network}
	case c.RoutesByZone():
		t, _ := failoverTopology(c.Zones.Failover, p.location.Locality.Region)
		t.by, t.locality.Region, t.labels = byRegion, p.location.Locality.Region, priorityLabels(c.Zones.FailoverPriority, p, cluster)
		return t
	case c.FailsOver:
		t, ok := failoverTopology(c.Locality.Failover, p.location.Locality.Region)
		if !ok && len(c.Locality.FailoverPriority) > 0 {
			return topology{by: byLabels, labels: priorityLabels(c.Locality.FailoverPriority, p, cluster)}
		}
		t.by, t.locality = byLocality, p.location.Locality
		return t
	}
	for _, d := range c.Locality.GetDistribute() {
		if matches(d.From, p.location.Locality) {
			return topology{by: byShare, share: d}
		}
	}
	return topology{}
}

// failoverTopology returns a topology with the failover region for a client's region, and whether there are any
// failover settings.
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

// priorityLabels returns the labels that endpoints should have, the most important first: with the value in a failover
// priority, or else the client's own.
func priorityLabels(list []string, p place, cluster string) frozen.List[cohort.Label] {
	own := registry.Labels{Own: map[string]string{},
		Place: registry.Place{Locality: p.location.Locality, Network: p.location.Network, Cluster: cluster, Node: p.node}}
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

// matches reports whether a pattern, region/zone/subzone, covers a locality. The parts after a star, and missing parts,
// match anything.
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

// shares returns the weights of localities by the weights of patterns. Localities that one pattern covers divide its
// weight in proportion to their own. Others have none.
func shares(d *networkingv1alpha3.LocalityLoadBalancerSetting_Distribute, localities []registry.Locality,
	own func(registry.Locality) uint32) map[registry.Locality]uint32 {
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
