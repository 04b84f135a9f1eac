package scope

import (
	"slices"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/registry"
)

// Reassign lists the proxies whose cohort may differ from the one at the Snapshot before. It does not cover proxies of
// unknown workloads: their cohort may differ whenever services or endpoints change.
type Reassign struct {
	All        bool
	Namespaces []string // of the proxies, sorted
}

// Includes reports whether the cohort of a proxy in a namespace may differ.
func (r *Reassign) Includes(namespace string) bool {
	if r.All {
		return true
	}
	_, ok := slices.BinarySearch(r.Namespaces, namespace)
	return ok
}

// findReassign returns whose cohorts may differ, because workloads, their selectors, or mesh-wide settings changed.
func (x *Index) findReassign(last *Index, virtual []virtualChange) Reassign {
	d := &x.Diff
	all := d.Global || len(d.Workloads) > 0 || x.HasNodeLocal() != last.HasNodeLocal() || x.HasTrafficDistribution() != last.HasTrafficDistribution()
	for _, c := range d.Configs {
		for _, o := range []*kinds.Object{c.Old, c.New} {
			all = all || o != nil && o.Kind != kinds.VirtualService
		}
	}
	for _, c := range virtual {
		all = all || c.old.hasSourceLabels() || c.new.hasSourceLabels()
	}
	for _, b := range d.OldEndpoints {
		all = all || servedByAddress(x.Service(b.ServiceKey))
	}
	var namespaces []string
	for _, c := range d.Services {
		for _, s := range []*registry.Service{c.Old, c.New} {
			if all = all || servedByAddress(s); s != nil { // with a selector, only workloads of its own namespace serve it
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

// servedByAddress reports whether any workload at the address of an endpoint serves a service, whatever its labels.
func servedByAddress(s *registry.Service) bool {
	for in := range variants(s) {
		if in.Selector == nil {
			return true
		}
	}
	return false
}

// hasSourceLabels reports whether a VirtualService matches on source labels.
func (v *VirtualService) hasSourceLabels() bool {
	if v != nil {
		for _, labels := range SourceLabels(v.Spec) {
			if len(labels) > 0 {
				return true
			}
		}
	}
	return false
}
