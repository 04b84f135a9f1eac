package aggregate

import (
	"slices"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/registry"
	"github.com/istiod-lite/istiod-lite/registry/kube"
	"github.com/istiod-lite/istiod-lite/registry/serviceentry"
)

// Registry is the union of its registries.
type Registry struct {
	kube      *kube.Registry
	entries   *serviceentry.Registry
	endpoints map[registry.ServiceKey][]*registry.Endpoint // as last handed on
}

// New gives a registry that owns k and e from now on.
func New(k *kube.Registry, e *serviceentry.Registry) *Registry {
	return &Registry{k, e, map[registry.ServiceKey][]*registry.Endpoint{}}
}

// Apply takes a batch of changes and gives what they alter.
func (r *Registry) Apply(changes []kinds.Change) registry.Changes {
	out := r.kube.Apply(changes)
	more := r.entries.Update(changes, out.Workloads)

	// A ServiceEntry's service shows only where Kubernetes has none; when that one goes, it comes forth.
	for k, s := range out.Services {
		if s == nil {
			out.Services[k] = r.entries.Service(k)
		}
	}
	for k, s := range more.Services {
		if _, ok := out.Services[k]; !ok && r.kube.Service(k) == nil {
			out.Services[k] = s
		}
	}
	for k := range more.Endpoints {
		out.Endpoints[k] = nil // to be looked at below
	}
	for k := range out.Endpoints {
		old := r.endpoints[k]
		next, same := registry.KeepEndpoints(old, merge(r.kube.Endpoints(k), r.entries.Endpoints(k)))
		if same {
			delete(out.Endpoints, k)
			continue
		}
		out.Endpoints[k] = next
		if r.endpoints[k] = next; len(next) == 0 {
			delete(r.endpoints, k)
		}
	}
	return out
}

// Service gives the service of that key, or nil.
func (r *Registry) Service(k registry.ServiceKey) *registry.Service {
	if s := r.kube.Service(k); s != nil {
		return s
	}
	return r.entries.Service(k)
}

// Endpoints gives the endpoints of that service, sorted.
func (r *Registry) Endpoints(k registry.ServiceKey) []*registry.Endpoint { return r.endpoints[k] }

// merge gives the endpoints of both, in a list of its own. A pod that Kubernetes' service has already is not added again by a ServiceEntry that selects it.
func merge(kube, entries []*registry.Endpoint) []*registry.Endpoint {
	out := slices.Clone(kube)
	for _, e := range entries {
		if _, there := slices.BinarySearchFunc(kube, e, registry.CompareEndpoints); !there {
			out = append(out, e)
		}
	}
	slices.SortStableFunc(out, registry.CompareEndpoints)
	return out
}
