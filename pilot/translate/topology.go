package translate

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/feature/destinationrule"
	"github.com/istiod-lite/istiod-lite/registry"
)

// topology is where a client runs, as far as the traffic distribution of a service asks: the zero nearness finds all endpoints equally near.
type topology struct {
	cohort.Location
	enabled  bool   // it matters at all
	sameNode bool   // below the zone, too
	node     string // the client's, in its cluster: beyond that a node's name is not unique
	cluster  string
}

// prefersClose tells that a service prefers endpoints close to the client, and that no rule says otherwise. Endpoints that Envoy resolves itself are the same to all
// clients: they are part of the cluster, which clients everywhere share.
func prefersClose(s *registry.Service, p destinationrule.Policy) bool {
	return s.TrafficDist != "" && s.Resolution != registry.DNS && s.Resolution != registry.DNSRoundRobin && p.LoadBalancer.GetLocalityLbSetting() == nil
}

func topologyOf(distribution string, c cohort.Inputs, cluster string) topology {
	n := topology{Location: c.Location, enabled: true}
	if distribution == corev1.ServiceTrafficDistributionPreferSameNode {
		n.sameNode, n.node, n.cluster = true, c.Node, cluster
		return n
	}
	n.Locality.SubZone = "" // closer than the zone does not matter
	return n
}

// distance counts how many of region, zone, subzone and node the endpoint does not share with the client, from the first that differs on; of one behind a gateway that is
// all. Another network is farther than anything in the client's own.
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

// priorities gives those of the distances that occur, without a gap: Envoy takes no other.
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
