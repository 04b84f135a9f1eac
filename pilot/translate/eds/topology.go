package eds

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/scope/traffic"
	"github.com/istiod-lite/istiod-lite/registry"
)

// topology is where a client runs, as far as a service's traffic distribution needs it. From it follows the topology
// priority of each endpoint. With the zero topology all endpoints have the same priority.
type topology struct {
	cohort.Location
	enabled  bool   // false for the zero topology
	sameNode bool   // subzone and node count as well
	node     string // the client's; unique within its cluster only
	cluster  string
}

// PrefersClose reports whether a service prefers endpoints close to the client, and no rule overrides that. It is false
// for endpoints that Envoy resolves itself: they are part of the cluster, which clients everywhere share.
func PrefersClose(s *registry.Service, p traffic.Policy) bool {
	return s.TrafficDist != "" && s.Resolution != registry.DNS && s.Resolution != registry.DNSRoundRobin && p.LoadBalancer.GetLocalityLbSetting() == nil
}

// topologyOf returns the topology of a client for a traffic distribution.
func topologyOf(distribution string, c cohort.Inputs, cluster string) topology {
	n := topology{Location: c.Location, enabled: true}
	if distribution == corev1.ServiceTrafficDistributionPreferSameNode {
		n.sameNode, n.node, n.cluster = true, c.Node, cluster
		return n
	}
	n.Locality.SubZone = "" // nothing below the zone counts
	return n
}

// distance returns how far an endpoint is from the client: how many of region, zone, subzone and node they do not
// share, counted from the first that differs. An endpoint behind a gateway shares none. An endpoint in another network
// is farther than any in the client's own.
func (n topology) distance(e *registry.Endpoint, crosses bool) int {
	if !n.enabled {
		return 0
	}
	steps := []bool{e.Locality.Region == n.Locality.Region, e.Locality.Zone == n.Locality.Zone}
	if n.sameNode {
		steps = append(steps, e.Locality.SubZone == n.Locality.SubZone, n.node != "" && e.NodeName == n.node && e.Cluster == n.cluster)
	}
	d := len(steps)
	if !crosses {
		d -= slices.Index(append(steps, false), false)
	}
	if e.Network != n.Network {
		d += len(steps) + 1
	}
	return d
}

// priorityGroup is the endpoints of one locality at one distance.
type priorityGroup struct {
	registry.Locality
	distance int
}

func compareGroups(a, b priorityGroup) int {
	return cmp.Or(cmp.Compare(a.Region, b.Region), cmp.Compare(a.Zone, b.Zone), cmp.Compare(a.SubZone, b.SubZone), cmp.Compare(a.distance, b.distance))
}

// priorities maps the distances that occur to topology priorities without a gap: Envoy takes no others.
func priorities(groups []priorityGroup) map[int]uint32 {
	var distances []int
	for _, g := range groups {
		distances = append(distances, g.distance)
	}
	slices.Sort(distances)
	out := map[int]uint32{}
	for i, d := range slices.Compact(distances) {
		out[d] = uint32(i)
	}
	return out
}
