package scope

import (
	"slices"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/registry"
)

// Reassign says of which proxies the cohort may be another than at the Snapshot before. Of a proxy whose workload nobody knows it may be whenever services, or their
// endpoints, are others.
type Reassign struct {
	All        bool
	Namespaces []string // of the proxies, sorted
}

// Includes tells whether it may be that of a proxy of a namespace.
func (j *Reassign) Includes(namespace string) bool {
	if j.All {
		return true
	}
	_, ok := slices.BinarySearch(j.Namespaces, namespace)
	return ok
}

// joins works out what follows for cohorts: from workloads, from whatever selects them, and from what is the same for all.
func (x *Index) joins(last *Index, virtual []virtualChange) Reassign {
	d := &x.Diff
	all := d.Global || len(d.Workloads) > 0 || x.HasNodeLocal() != last.HasNodeLocal() || x.HasTrafficDistribution() != last.HasTrafficDistribution()
	for _, c := range d.Configs {
		for _, o := range []*kinds.Object{c.Old, c.New} {
			all = all || o != nil && o.Kind != kinds.VirtualService
		}
	}
	for _, c := range virtual {
		all = all || c.was.sourced() || c.is.sourced()
	}
	for _, b := range d.OldEndpoints {
		all = all || servesWhere(x.Service(b.ServiceKey))
	}
	var namespaces []string
	for _, c := range d.Services {
		for _, s := range []*registry.Service{c.Old, c.New} {
			if all = all || servesWhere(s); s != nil { // else workloads of its own namespace serve it
				namespaces = append(namespaces, s.Namespace)
			}
		}
	}
	if all {
		return Reassign{All: true}
	}
	slices.Sort(namespaces)
	return Reassign{Namespaces: slices.Compact(namespaces)}
}

// servesWhere tells a service that any workload serves that is at the address of an endpoint.
func servesWhere(s *registry.Service) bool {
	for in := range variants(s) {
		if in.Selector == nil {
			return true
		}
	}
	return false
}

// sourced tells a VirtualService that has a match on source labels.
func (v *VirtualService) sourced() bool {
	if v != nil {
		for _, labels := range SourceLabels(v.Spec) {
			if len(labels) > 0 {
				return true
			}
		}
	}
	return false
}
