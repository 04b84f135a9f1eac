package scope

import (
	"maps"
	"slices"
	"strings"

	"github.com/istiod-lite/istiod-lite/pilot/scope/traffic"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/registry"
)

// placement is a row that says what of where a proxy runs its configuration may depend on.
type placement struct {
	nodeLocal           bool   // some service is called only on the caller's own node
	trafficDistribution bool   // some service prefers endpoints close to the caller
	locality            bool   // some rule, or the mesh, prefers endpoints by where they run
	inClusters          bool   // so do clusters, which hold their endpoints themselves
	labels              string // those of proxies by which endpoints are sorted
}

func (x *Index) placement() placement {
	p := placement{
		nodeLocal: x.nodeLocal > 0, trafficDistribution: x.trafficDistribution > 0,
		locality: x.placing > 0 || traffic.MeshPlaces(x.Mesh), labels: strings.Join(x.priorityLabelNames(), " "),
	}
	p.inClusters = p.locality && x.spreadInClusters > 0
	return p
}

// priorityLabelNames returns the labels by which rules or the mesh sort endpoints, sorted.
func (x *Index) priorityLabelNames() []string {
	list := traffic.PriorityLabels(x.Mesh.GetLocalityLbSetting().GetFailoverPriority(), x.Mesh.GetZoneAwareLbSetting().GetFailoverPriority())
	list = slices.AppendSeq(list, maps.Keys(x.priorityLabels))
	slices.Sort(list)
	return slices.Compact(list)
}

// readPlacement returns the placement of a translation.
func (x *Index) readPlacement() placement {
	if x.placementRead != nil {
		x.placementRead()
	}
	return x.placement()
}

// NeedsNode reports whether anything depends on the node that a proxy runs on.
func (x *Index) NeedsNode() bool {
	p := x.readPlacement()
	return p.nodeLocal || p.trafficDistribution || slices.Contains(strings.Fields(p.labels), traffic.HostLabel)
}

// NeedsLocality reports whether any assignment depends on the locality and network of a proxy, and whether any cluster
// does.
func (x *Index) NeedsLocality() (assignments, clusters bool) {
	p := x.readPlacement()
	return p.trafficDistribution || p.locality, p.inClusters
}

// PriorityLabels returns the labels of proxies by which endpoints are sorted, sorted by name.
func (x *Index) PriorityLabels() []string { return strings.Fields(x.readPlacement().labels) }

// spreadInCluster reports whether a cluster holds its endpoints itself, and they differ in locality or labels.
func spreadInCluster(s *registry.Service, eps *snapshot.Endpoints) bool {
	if s.Resolution != registry.DNS && s.Resolution != registry.DNSRoundRobin || eps == nil {
		return false
	}
	return slices.ContainsFunc(eps.List, func(e *registry.Endpoint) bool {
		return e.Locality != registry.Locality{} || len(e.Labels) > 0
	})
}
