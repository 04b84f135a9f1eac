package aggregate

import (
	"slices"

	"github.com/istiod-lite/istiod-lite/registry"
	"github.com/istiod-lite/istiod-lite/registry/mcs"
)

// addSets adds the keys of services in all clusters to the keys that changed, and the keys of services whose exports
// changed. Only keys are added, because the caller merges each again.
func (r *Registry) addSets(concerned []mcs.Name, found registry.Changes) {
	sets := r.o.Sets
	if sets == nil {
		return
	}
	var services, endpoints []registry.ServiceKey
	add := func(n mcs.Name, service bool) {
		if k, ok := sets.Set(n); ok {
			if endpoints = append(endpoints, k); service {
				services = append(services, k)
			}
		}
	}
	for _, n := range concerned {
		endpoints = append(endpoints, sets.Local(n))
		add(n, true)
	}
	for k := range found.Services {
		if n, _, ok := sets.Parse(k); ok {
			add(n, true)
		}
	}
	for k := range found.Endpoints {
		if n, _, ok := sets.Parse(k); ok {
			add(n, false)
		}
	}
	for _, k := range services {
		found.Services[k] = nil
	}
	for _, k := range endpoints {
		found.Endpoints[k] = nil
	}
}

// serviceIn returns a cluster's version of a service, or nil. A service in all clusters is made from the cluster's own
// Service, or else from the first cluster's that has it.
func (r *Registry) serviceIn(id string, k registry.ServiceKey) *registry.Service {
	n, set, ok := r.o.Sets.Parse(k)
	if !ok || !set {
		return r.clusters[id].Service(k)
	}
	if !r.o.Sets.Imports(id, n) {
		return nil
	}
	local := r.o.Sets.Local(n)
	if s := r.clusters[id].Service(local); s != nil {
		return r.o.Sets.Import(id, n, s, true)
	}
	for _, other := range r.order {
		if s := r.clusters[other].Service(local); s != nil {
			return r.o.Sets.Import(id, n, s, false)
		}
	}
	return nil
}

// exists reports whether a service may have endpoints. A service in all clusters needs a version in some cluster.
func (r *Registry) exists(k registry.ServiceKey) bool {
	_, set, _ := r.o.Sets.Parse(k)
	return !set || slices.ContainsFunc(r.order, func(id string) bool { return r.serviceIn(id, k) != nil })
}

// endpointsIn returns a cluster's endpoints of a service that exists, sorted. A cluster that imports a service in all
// clusters and has no version of it adds none.
func (r *Registry) endpointsIn(id string, k registry.ServiceKey) []*registry.Endpoint {
	n, set, ok := r.o.Sets.Parse(k)
	switch {
	case !ok:
		return r.clusters[id].Endpoints(k)
	case set && r.o.Sets.Imports(id, n) && r.serviceIn(id, k) == nil:
		return nil
	}
	return r.o.Sets.Confine(id, n, set, r.clusters[id].Endpoints(r.o.Sets.Local(n)))
}
