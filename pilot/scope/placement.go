package scope

import (
	"maps"
	"slices"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/scope/traffic"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/registry"
)

// placement says which properties of the location of proxies may matter to their configuration. If it changes, every
// proxy is assigned to a cohort again.
type placement struct {
	nodeLocal           bool   // some service is called only on the client's own node
	trafficDistribution bool   // some service prefers endpoints close to the client
	locality            bool   // some rule, or the mesh, prefers endpoints by location
	inClusters          bool   // so do clusters that contain their endpoints
	labels              string // proxy labels by which endpoints are sorted
}

// placement computes the placement of the Index once.
func (x *Index) placement() placement {
	x.placedOnce.Do(func() {
		x.sortedBy = x.priorityLabelNames()
		x.placed = placement{
			nodeLocal: x.nodeLocal > 0, trafficDistribution: x.trafficDistribution > 0,
			locality: x.placing > 0 || traffic.MeshPlaces(x.Mesh), labels: strings.Join(x.sortedBy, " "),
		}
		x.placed.inClusters = x.placed.locality && x.spreadInClusters > 0
	})
	return x.placed
}

// priorityLabelNames returns the labels by which rules or the mesh sort endpoints, sorted.
func (x *Index) priorityLabelNames() []string {
	list := traffic.PriorityLabels(x.Mesh.GetLocalityLbSetting().GetFailoverPriority(), x.Mesh.GetZoneAwareLbSetting().GetFailoverPriority())
	list = slices.AppendSeq(list, maps.Keys(x.priorityLabels))
	slices.Sort(list)
	return slices.Compact(list)
}

// readPlacement returns the placement, as a look-up of a translation.
func (x *Index) readPlacement() placement {
	p := x.placement()
	if x.trace != nil && x.trace.placement {
		x.trace.found("placement", p)
	}
	return p
}

// NeedsNode reports whether any configuration depends on the node of a proxy.
func (x *Index) NeedsNode() bool {
	p := x.readPlacement()
	return p.nodeLocal || p.trafficDistribution || x.sortsBy(names.LabelHost)
}

// NeedsLocality reports whether any assignment depends on the locality and network of a proxy, whether any cluster
// does, and whether any cluster also depends on its node.
func (x *Index) NeedsLocality() (assignments, clusters, node bool) {
	p := x.readPlacement()
	return p.trafficDistribution || p.locality, p.inClusters, p.inClusters && x.sortsBy(names.LabelHost)
}

// PriorityLabels returns which of a proxy's labels endpoints are sorted by, sorted by name.
func (x *Index) PriorityLabels(labels map[string]string) []string {
	x.readPlacement()
	var names []string
	for name := range labels {
		if x.sortsBy(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// sortsBy reports whether endpoints are sorted by a label. The placement must have been computed.
func (x *Index) sortsBy(label string) bool {
	_, found := slices.BinarySearch(x.sortedBy, label)
	return found
}

// spreadInCluster reports whether a cluster contains its endpoints and these may differ in location or labels.
func spreadInCluster(s *registry.Service, eps *snapshot.Endpoints) bool {
	if !s.Resolution.EndpointsInCluster() || eps == nil {
		return false
	}
	return slices.ContainsFunc(eps.List, func(e *registry.Endpoint) bool {
		return e.Locality != registry.Locality{} || e.Network != "" || len(e.Labels) > 0
	})
}
