package serviceentry

import (
	"cmp"
	"slices"
	"strings"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/registry"
	"github.com/istiod-lite/istiod-lite/registry/internal/namespaces"
	"github.com/istiod-lite/istiod-lite/registry/internal/selection"
)

// Options configures a Registry.
type Options struct {
	Cluster     string // ID of the cluster, written on inline endpoints
	TrustDomain string // trust domain of identities; empty for cluster.local
	// Visibility limits where entries are visible. It is nil if nothing does.
	Visibility *mesh.EntryVisibility
	Ranges     Ranges // of the addresses that hosts without addresses get
}

// Registry derives services and endpoints from ServiceEntries. One goroutine uses it.
type Registry struct {
	opts       Options
	namespaces *namespaces.Table
	labels     map[string]map[string]string // labels of namespaces by name; kept only for Visibility
	entries    map[name]*entry
	services   map[registry.ServiceKey]*service
	workloads  map[registry.WorkloadKey]*registry.Workload
	selectors  *selection.Index[name, registry.WorkloadKey]
	indexed    bool // workloads are members of selectors; true from the first entry with a selector on
	allocator  *allocator
	dirty      map[registry.ServiceKey]struct{}
}

type name struct{ namespace, name string }

type entry struct {
	object   *kinds.Object
	spec     *networkingv1.ServiceEntry
	keys     []registry.ServiceKey        // one key for each host
	assigned map[string][]assignedAddress // assigned addresses by host
}

type service struct {
	entries   []*entry // oldest first; empty if the service is deleted
	current   *registry.Service
	endpoints []*registry.Endpoint
}

// New returns an empty registry.
func New(o Options) *Registry {
	o.TrustDomain = cmp.Or(o.TrustDomain, "cluster.local")
	ranges := o.Ranges.orDefault()
	return &Registry{
		opts: o, namespaces: namespaces.New("", nil), labels: map[string]map[string]string{},
		entries: map[name]*entry{}, services: map[registry.ServiceKey]*service{}, workloads: map[registry.WorkloadKey]*registry.Workload{},
		selectors: selection.New[name, registry.WorkloadKey](), allocator: newAllocator(ranges, ranges.slots()),
		dirty: map[registry.ServiceKey]struct{}{},
	}
}

// Apply applies a batch of changes and returns what they alter.
func (r *Registry) Apply(changes []kinds.Change) registry.Changes { return r.Update(changes, nil) }

// Update applies a batch of changes, and the changes of workloads that another registry derived from it. A nil workload
// was deleted.
func (r *Registry) Update(changes []kinds.Change, workloads map[registry.WorkloadKey]*registry.Workload) registry.Changes {
	for _, c := range changes {
		if c.Cluster != "" {
			continue
		}
		switch c.Kind {
		case kinds.ServiceEntry:
			r.applyEntry(name{c.Namespace, c.Name}, c.Object)
		case kinds.Namespace:
			r.applyNamespace(c)
		}
	}
	for k, w := range workloads {
		r.applyWorkload(k, w)
	}
	return r.flush()
}

// Service returns the service of a key, or nil.
func (r *Registry) Service(k registry.ServiceKey) *registry.Service {
	if s := r.services[k]; s != nil {
		return s.current
	}
	return nil
}

// Endpoints returns the endpoints of a service, sorted.
func (r *Registry) Endpoints(k registry.ServiceKey) []*registry.Endpoint {
	if s := r.services[k]; s != nil {
		return s.endpoints
	}
	return nil
}

func (r *Registry) applyEntry(n name, o *kinds.Object) {
	if old := r.entries[n]; old != nil {
		delete(r.entries, n)
		for _, k := range old.keys {
			s := r.services[k]
			s.entries = slices.DeleteFunc(s.entries, func(e *entry) bool { return e == old })
			r.dirty[k] = struct{}{}
		}
	}
	if o == nil {
		r.selectors.SetSelector(n, n.namespace, nil)
		return
	}
	e := &entry{object: o, spec: o.Spec.(*networkingv1.ServiceEntry), assigned: assignedAddresses(o)}
	r.entries[n] = e
	for _, h := range e.spec.Hosts {
		k := registry.ServiceKey{Namespace: n.namespace, Host: strings.TrimSuffix(strings.ToLower(h), ".")}
		s := r.services[k]
		if s == nil {
			s = &service{}
			r.services[k] = s
		}
		i, there := slices.BinarySearchFunc(s.entries, e, compareAge)
		if there { // the entry has the host twice
			continue
		}
		e.keys = append(e.keys, k)
		s.entries = slices.Insert(s.entries, i, e)
		r.dirty[k] = struct{}{}
	}
	if labels := e.spec.WorkloadSelector.GetLabels(); len(labels) > 0 && !r.indexed {
		r.indexed = true
		for k, w := range r.workloads {
			r.selectors.SetMember(k, k.Namespace, w.Labels)
		}
	}
	r.selectors.SetSelector(n, n.namespace, e.spec.WorkloadSelector.GetLabels())
}

func compareAge(a, b *entry) int {
	if c := a.object.Created.Compare(b.object.Created); c != 0 {
		return c
	}
	return strings.Compare(a.object.Name, b.object.Name)
}

// applyNamespace applies a change of a Namespace. It checks every service, because such changes are rare.
func (r *Registry) applyNamespace(c kinds.Change) {
	_, changed := r.namespaces.Apply(c)
	if r.opts.Visibility != nil {
		before := r.visibility(c.Name)
		delete(r.labels, c.Name)
		if c.Object != nil {
			r.labels[c.Name] = c.Object.Labels
		}
		changed = changed || r.visibility(c.Name) != before
	}
	if !changed {
		return
	}
	for k := range r.services {
		if k.Namespace == c.Name {
			r.dirty[k] = struct{}{}
		}
	}
}

// visibility returns where the entries of a namespace are visible.
func (r *Registry) visibility(namespace string) meshv1alpha1.ServiceEntryVisibility_Visibility {
	return r.opts.Visibility.For(namespace, r.labels[namespace])
}

// applyWorkload stores a workload while it is reachable and ready, so that entries can select it.
func (r *Registry) applyWorkload(k registry.WorkloadKey, w *registry.Workload) {
	mark := func(n name) {
		for _, k := range r.entries[n].keys {
			r.dirty[k] = struct{}{}
		}
	}
	r.selectors.Selecting(k, mark)
	if w == nil || !w.Ready || !w.Reachable() {
		delete(r.workloads, k)
		r.selectors.RemoveMember(k)
		return
	}
	r.workloads[k] = w
	if r.indexed {
		r.selectors.SetMember(k, k.Namespace, w.Labels)
	}
	r.selectors.Selecting(k, mark)
}

func (r *Registry) flush() registry.Changes {
	out := registry.Changes{Services: map[registry.ServiceKey]*registry.Service{}, Endpoints: map[registry.ServiceKey][]*registry.Endpoint{}}
	next := map[registry.ServiceKey]*registry.Service{}
	for k := range r.dirty {
		s := r.services[k]
		if len(s.entries) == 0 {
			next[k] = nil
			r.allocator.assign(k, nil)
			r.allocator.remove(k)
			continue
		}
		next[k] = r.service(k, s.entries)
		if needsAddress(next[k], s.entries[0].object) {
			r.allocator.set(holding{k, next[k].Created, r.allocator.assign(k, s.entries[0].addressesOf(k.Host))})
		} else {
			r.allocator.assign(k, nil)
			r.allocator.remove(k)
		}
	}
	for k := range r.allocator.changed {
		// A service that is not dirty has only a new address.
		if s := r.services[k]; next[k] == nil && len(s.entries) > 0 {
			moved := *s.current
			next[k] = &moved
		}
	}
	for k, svc := range next {
		s := r.services[k]
		if svc != nil {
			svc.AutoAddress = r.allocator.addresses(k)
		}
		if svc.Equal(s.current) {
			svc = s.current
		} else {
			s.current = svc
			out.Services[k] = svc
		}
		if svc == nil {
			if len(s.endpoints) > 0 {
				out.Endpoints[k] = nil
			}
			delete(r.services, k)
			continue
		}
		if _, ok := r.dirty[k]; !ok {
			continue
		}
		if l, same := registry.ReuseEndpoints(s.endpoints, r.endpoints(svc, s.entries)); !same {
			s.endpoints = l
			out.Endpoints[k] = l
		}
	}
	clear(r.dirty)
	clear(r.allocator.changed)
	return out
}
