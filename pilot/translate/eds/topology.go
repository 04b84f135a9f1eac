package eds

import (
	"cmp"
	"slices"

	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/registry"
)

// topology is the part of a client's location that an assignment depends on. It determines the priority of each
// endpoint. With the zero topology all endpoints have the same priority.
type topology struct {
	by       criterion
	locality registry.Locality
	network  string
	node     string // the client's node; unique only within its cluster
	cluster  string
	failover string // first failover region for the client's
	labels   frozen.List[cohort.Label]
	share    *networkingv1alpha3.LocalityLoadBalancerSetting_Distribute
}

// criterion is the property by which endpoints are close.
type criterion int

// Criteria.
const (
	byNothing  criterion = iota // all endpoints are equal
	byZone                      // network, region and zone
	byNode                      // network, region, zone, subzone and node
	byLocality                  // region, zone and subzone
	byRegion                    // labels, and then the region
	byLabels                    // the leading labels that are equal
	byShare                     // all endpoints have one priority, and localities have weights
)

// prioritizes reports whether endpoints differ in priority.
func (n topology) prioritizes() bool { return n.by != byNothing && n.by != byShare }

// distance returns the distance of an endpoint from the client. The closest endpoints have the smallest distance, which
// need not be 0.
func (n topology) distance(e *registry.Endpoint, crosses bool) int {
	l := e.Locality
	switch n.by {
	case byZone:
		return n.networkDistance(e, crosses, l.Region == n.locality.Region, l.Zone == n.locality.Zone)
	case byNode:
		return n.networkDistance(e, crosses, l.Region == n.locality.Region, l.Zone == n.locality.Zone, l.SubZone == n.locality.SubZone,
			n.node != "" && e.NodeName == n.node && e.Cluster == n.cluster)
	case byLocality:
		return n.regionDistance(l, differing(l.Region == n.locality.Region, l.Zone == n.locality.Zone, l.SubZone == n.locality.SubZone), 3)
	case byRegion:
		const regions = 3 // the client's own, the failover region, any other
		return n.labelDistance(e)*regions + n.regionDistance(l, differing(l.Region == n.locality.Region), 1)
	case byLabels:
		return n.labelDistance(e)
	}
	return 0
}

// labelDistance returns the number of labels from the first one that the endpoint lacks.
func (n topology) labelDistance(e *registry.Endpoint) int {
	var same []bool
	for label := range n.labels.All {
		same = append(same, e.AllLabels().Get(label.Name) == label.Value)
	}
	return differing(same...)
}

// differing returns the number of steps from the first one that differs.
func differing(same ...bool) int {
	if i := slices.Index(same, false); i >= 0 {
		return len(same) - i
	}
	return 0
}

// networkDistance returns the number of steps from the first one in which the endpoint differs from the client. An
// endpoint behind a gateway differs in all. An endpoint in another network is farther than any in the client's own.
func (n topology) networkDistance(e *registry.Endpoint, crosses bool, steps ...bool) int {
	d := differing(steps...)
	if crosses {
		d = len(steps)
	}
	if e.Network != n.network {
		d += len(steps) + 1
	}
	return d
}

// regionDistance adds a distance to regions other than the client's and its failover region. foreign is the distance to
// another region.
func (n topology) regionDistance(l registry.Locality, distance, foreign int) int {
	if distance == foreign && n.failover != "" && l.Region != n.failover {
		return foreign + 1
	}
	return distance
}

// priorityGroup is the endpoints of one locality at one distance.
type priorityGroup struct {
	registry.Locality
	distance int
}

func compareGroups(a, b priorityGroup) int {
	return cmp.Or(cmp.Compare(a.Region, b.Region), cmp.Compare(a.Zone, b.Zone), cmp.Compare(a.SubZone, b.SubZone),
		cmp.Compare(a.distance, b.distance))
}

// maxPriority is the lowest priority that Envoy accepts. Endpoints that are farther share it.
const maxPriority = 128

// priorities maps distances to consecutive priorities, as Envoy requires.
func priorities(groups []priorityGroup) map[int]uint32 {
	distances := lists.Map(groups, func(g priorityGroup) int { return g.distance })
	slices.Sort(distances)
	out := map[int]uint32{}
	for i, d := range slices.Compact(distances) {
		out[d] = uint32(min(i, maxPriority))
	}
	return out
}
