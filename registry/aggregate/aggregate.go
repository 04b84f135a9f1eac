package aggregate

import (
	"cmp"
	"maps"
	"slices"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/registry"
	"github.com/istiod-lite/istiod-lite/registry/kube"
	"github.com/istiod-lite/istiod-lite/registry/mcs"
	"github.com/istiod-lite/istiod-lite/registry/serviceentry"
)

// Options configures a Registry.
type Options struct {
	Kube    func(cluster string) *kube.Registry // returns a new registry for the cluster with an ID, which is empty for the server's own
	Entries *serviceentry.Registry
	Sets    *mcs.Table // what clusters export and import; nil if the Multi-Cluster Services API is off
}

// Registry combines the registries that it owns.
type Registry struct {
	o         Options
	clusters  map[string]*kube.Registry                 // by ID: always the own cluster, and each other one that has objects
	order     []string                                  // of clusters: the own first, then by ID
	services  map[registry.ServiceKey]*registry.Service // as last returned
	endpoints map[registry.ServiceKey][]*registry.Endpoint
}

// New returns an empty registry.
func New(o Options) *Registry {
	return &Registry{
		o,
		map[string]*kube.Registry{"": o.Kube("")},
		[]string{""},
		map[registry.ServiceKey]*registry.Service{},
		map[registry.ServiceKey][]*registry.Endpoint{},
	}
}

// Apply applies a batch of changes and returns what they alter.
func (r *Registry) Apply(changes []kinds.Change) registry.Changes {
	concerned := r.o.Sets.Apply(changes)
	found := r.dispatch(changes)
	r.addSets(concerned, found)
	entries := r.o.Entries.Update(changes, found.Workloads)
	maps.Copy(found.Services, entries.Services)
	maps.Copy(found.Endpoints, entries.Endpoints)

	// The changes of the registries say where to look. The result is the difference in the combined tables.
	out := registry.Changes{Services: map[registry.ServiceKey]*registry.Service{},
		Endpoints: map[registry.ServiceKey][]*registry.Endpoint{}, Workloads: found.Workloads}
	for k := range found.Services {
		old, next := r.services[k], r.merge(k)
		if next.Equal(old) {
			continue
		}
		out.Services[k] = next
		if r.services[k] = next; next == nil {
			delete(r.services, k)
		}
	}
	for k := range found.Endpoints {
		next, same := registry.ReuseEndpoints(r.endpoints[k], r.mergeEndpoints(k))
		if same {
			continue
		}
		out.Endpoints[k] = next
		if r.endpoints[k] = next; len(next) == 0 {
			delete(r.endpoints, k)
		}
	}
	return out
}

// dispatch passes each cluster's changes to its registry. A cluster's registry exists as long as the cluster has
// objects.
func (r *Registry) dispatch(changes []kinds.Change) registry.Changes {
	batches := map[string][]kinds.Change{}
	if slices.ContainsFunc(changes, func(c kinds.Change) bool { return c.Cluster != "" }) {
		for _, c := range changes {
			batches[c.Cluster] = append(batches[c.Cluster], c)
		}
	} else {
		batches[""] = changes
	}
	found := registry.Changes{
		Services: map[registry.ServiceKey]*registry.Service{}, Endpoints: map[registry.ServiceKey][]*registry.Endpoint{},
		Workloads: map[registry.WorkloadKey]*registry.Workload{},
	}
	for id, batch := range batches {
		k := r.clusters[id]
		if k == nil {
			k = r.o.Kube(id)
			r.clusters[id] = k
		}
		if c := k.Apply(batch); len(batches) == 1 {
			found = c
		} else {
			maps.Copy(found.Services, c.Services)
			maps.Copy(found.Endpoints, c.Endpoints)
			maps.Copy(found.Workloads, c.Workloads)
		}
		if id != "" && k.Empty() && !r.o.Sets.Has(id) {
			delete(r.clusters, id)
		}
	}
	if len(r.order) != len(r.clusters) || len(batches) > 1 {
		r.order = slices.Sorted(maps.Keys(r.clusters))
	}
	return found
}

// merge returns the service of a key: the first cluster's, or else the ServiceEntries', or else nil. If remote clusters
// have the service, the result holds each cluster's version, and the service accounts of all.
func (r *Registry) merge(k registry.ServiceKey) *registry.Service {
	var first *registry.Service
	var all map[string]*registry.Service
	for _, id := range r.order {
		s := r.serviceIn(id, k)
		if s == nil {
			continue
		}
		first = cmp.Or(first, s)
		if all == nil && id != "" {
			all = map[string]*registry.Service{}
			if first != s {
				all[""] = first
			}
		}
		if all != nil {
			all[id] = s
		}
	}
	switch {
	case first == nil:
		return r.o.Entries.Service(k)
	case all == nil:
		return first
	}
	merged := *first
	merged.Clusters = all
	merged.ServiceAccounts = slices.Clone(first.ServiceAccounts)
	for _, id := range r.order {
		if s := all[id]; s != nil {
			for _, account := range s.ServiceAccounts {
				if !slices.Contains(merged.ServiceAccounts, account) {
					merged.ServiceAccounts = append(merged.ServiceAccounts, account)
				}
			}
		}
	}
	return &merged
}

// mergeEndpoints returns the endpoints of all clusters and of ServiceEntries, sorted, in a new slice. It skips
// endpoints of a ServiceEntry for pods that are endpoints of a cluster's service already.
func (r *Registry) mergeEndpoints(k registry.ServiceKey) []*registry.Endpoint {
	var out []*registry.Endpoint
	if r.exists(k) {
		for _, id := range r.order {
			out = append(out, r.endpointsIn(id, k)...)
		}
	}
	slices.SortStableFunc(out, registry.CompareEndpoints)
	of := len(out)
	for _, e := range r.o.Entries.Endpoints(k) {
		if _, there := slices.BinarySearchFunc(out[:of], e, registry.CompareEndpoints); !there {
			out = append(out, e)
		}
	}
	slices.SortStableFunc(out, registry.CompareEndpoints)
	return out
}

// Service returns the service of a key, or nil.
func (r *Registry) Service(k registry.ServiceKey) *registry.Service { return r.services[k] }

// Endpoints returns the endpoints of a service, sorted.
func (r *Registry) Endpoints(k registry.ServiceKey) []*registry.Endpoint { return r.endpoints[k] }

// Clusters returns the IDs of the remote clusters that have objects, sorted.
func (r *Registry) Clusters() []string { return r.order[1:] }

// Gateways returns the addresses of gateways into networks, sorted, in a new slice.
func (r *Registry) Gateways() []registry.Gateway {
	var out []registry.Gateway
	for _, k := range r.clusters {
		out = append(out, k.Gateways()...)
	}
	slices.SortFunc(out, registry.CompareGateways)
	return out
}

// Pending returns how many endpoints, in all clusters, wait for the pod that their slice names.
func (r *Registry) Pending() int { return r.sum((*kube.Registry).Pending) }

// PodsWithoutIP returns how many pods, in all clusters, are running or pending without an address.
func (r *Registry) PodsWithoutIP() int { return r.sum((*kube.Registry).PodsWithoutIP) }

// NotReady returns how many endpoints, in all clusters, are unhealthy.
func (r *Registry) NotReady() int { return r.sum((*kube.Registry).NotReady) }

func (r *Registry) sum(of func(*kube.Registry) int) int {
	n := 0
	for _, k := range r.clusters {
		n += of(k)
	}
	return n
}
