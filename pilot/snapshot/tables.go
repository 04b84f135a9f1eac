package snapshot

import (
	"cmp"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/registry"
)

// tables are the content of a Snapshot, indexed by each order of look-ups. A commit copies what it changes.
type tables struct {
	services  frozen.Table[*registry.Service] // by precedence
	hosts     frozen.Table[*registry.Service] // by host, then precedence
	endpoints frozen.Table[ServiceEndpoints]  // by host and namespace of the service
	workloads frozen.Table[*registry.Workload]
	addresses frozen.Table[workloadAddress] // by ClusterAddress, then workload
	objects   map[*kinds.Kind]objects
	facts     frozen.Table[*kinds.Object] // by kind and name
	wants     frozen.Table[Want]          // by fact, then object

	summaries *frozen.Table[ServiceEndpoints] // endpoints for look-ups of summaries in a traced Snapshot; else nil
}

// workloadAddress is a workload and the index of one of its addresses.
type workloadAddress struct {
	*registry.Workload
	index int
}

func (a workloadAddress) key() ClusterAddress {
	return ClusterAddress{a.WorkloadKey.Cluster, a.Addresses[a.index]}
}

// objects are the objects of one kind.
type objects struct {
	byName       frozen.Table[*kinds.Object] // by namespace, name and cluster
	byNamespace  frozen.Table[*kinds.Object] // by namespace, then precedence
	byPrecedence frozen.Table[*kinds.Object]
}

func newTables() tables {
	return tables{
		services: frozen.NewTable(ByServicePrecedence), hosts: frozen.NewTable(byHost), endpoints: frozen.NewTable(byService),
		workloads: frozen.NewTable(byWorkload),
		addresses: frozen.NewTable(byAddress), objects: map[*kinds.Kind]objects{}, facts: newFacts(), wants: newWants(),
	}
}

func newObjects() objects {
	return objects{byName: frozen.NewTable(byName), byNamespace: frozen.NewTable(byNamespace), byPrecedence: frozen.NewTable(ByPrecedence)}
}

// replaceObject replaces an object. Either may be nil. It modifies the map of kinds.
func (t *tables) replaceObject(e *frozen.Edit, kind *kinds.Kind, was, is *kinds.Object) {
	o, ok := t.objects[kind]
	if !ok {
		o = newObjects()
	}
	if was != nil {
		o.byName.Delete(e, was)
		o.byNamespace.Delete(e, was)
		o.byPrecedence.Delete(e, was)
	}
	if is != nil {
		o.byName.Put(e, is)
		o.byNamespace.Put(e, is)
		o.byPrecedence.Put(e, is)
	}
	t.objects[kind] = o
}

func (t *tables) replaceService(e *frozen.Edit, was, is *registry.Service) {
	if was != nil {
		t.services.Delete(e, was)
		t.hosts.Delete(e, was)
	}
	if is != nil {
		t.services.Put(e, is)
		t.hosts.Put(e, is)
	}
}

func (t *tables) replaceWorkload(e *frozen.Edit, was, is *registry.Workload) {
	each := func(w *registry.Workload, do func(*frozen.Edit, workloadAddress)) {
		if w == nil || w.HostNetwork {
			return
		}
		for i := range w.Addresses {
			do(e, workloadAddress{w, i})
		}
	}
	each(was, t.addresses.Delete)
	each(is, t.addresses.Put)
	switch {
	case is != nil:
		t.workloads.Put(e, is)
	case was != nil:
		t.workloads.Delete(e, was)
	}
}

// Service returns one service, or nil.
func (t tables) Service(k registry.ServiceKey) *registry.Service {
	for s := range t.hosts.Where(withHost(k.Host)) {
		if s.Namespace == k.Namespace {
			return s
		}
	}
	return nil
}

// Endpoints returns the endpoints of one service, never nil.
func (t tables) Endpoints(k registry.ServiceKey) *Endpoints {
	if e, ok := t.endpoints.Get(ServiceEndpoints{ServiceKey: k}); ok {
		return e.Endpoints
	}
	return noEndpoints
}

// EndpointSummary returns the summary of a service's endpoints.
func (t tables) EndpointSummary(k registry.ServiceKey) EndpointSummary {
	if t.summaries != nil {
		t.endpoints = *t.summaries
	}
	return t.Endpoints(k).EndpointSummary
}

// Workload returns a workload by kind, namespace and name, or nil.
func (t tables) Workload(k registry.WorkloadKey) *registry.Workload {
	w, _ := t.workloads.First(func(w *registry.Workload) int { return w.WorkloadKey.Compare(k) })
	return w
}

func (t tables) workloadByAddress(p ClusterAddress) *registry.Workload {
	a, _ := t.addresses.First(func(a workloadAddress) int { return a.key().compare(p) })
	return a.Workload
}

// Object returns one configuration object, or nil.
func (t tables) Object(k kinds.Key) *kinds.Object {
	o, _ := t.objects[k.Kind].byName.First(func(o *kinds.Object) int {
		return cmp.Or(strings.Compare(o.Namespace, k.Namespace), strings.Compare(o.Name, k.Name), strings.Compare(o.Cluster, k.Cluster))
	})
	return o
}

func (p ClusterAddress) compare(o ClusterAddress) int {
	if c := strings.Compare(p.Address, o.Address); c != 0 {
		return c
	}
	return strings.Compare(p.Cluster, o.Cluster)
}

// ByPrecedence orders objects of one kind: oldest first, ties by name, namespace and cluster.
func ByPrecedence(a, b *kinds.Object) int {
	if a == b {
		return 0
	}
	if c := a.Created.Compare(b.Created); c != 0 {
		return c
	}
	if c := strings.Compare(a.Name, b.Name); c != 0 {
		return c
	}
	if c := strings.Compare(a.Namespace, b.Namespace); c != 0 {
		return c
	}
	return strings.Compare(a.Cluster, b.Cluster)
}

// ByServicePrecedence orders services: oldest first, ties by name, namespace and host.
func ByServicePrecedence(a, b *registry.Service) int {
	if a == b {
		return 0
	}
	if c := a.Created.Compare(b.Created); c != 0 {
		return c
	}
	if c := strings.Compare(a.Name, b.Name); c != 0 {
		return c
	}
	if c := strings.Compare(a.Namespace, b.Namespace); c != 0 {
		return c
	}
	return strings.Compare(a.Host, b.Host)
}

func byName(a, b *kinds.Object) int {
	if c := strings.Compare(a.Namespace, b.Namespace); c != 0 {
		return c
	}
	if c := strings.Compare(a.Name, b.Name); c != 0 {
		return c
	}
	return strings.Compare(a.Cluster, b.Cluster)
}

func byNamespace(a, b *kinds.Object) int {
	if c := strings.Compare(a.Namespace, b.Namespace); c != 0 {
		return c
	}
	return ByPrecedence(a, b)
}

func byHost(a, b *registry.Service) int {
	if c := strings.Compare(a.Host, b.Host); c != 0 {
		return c
	}
	return ByServicePrecedence(a, b)
}

func withHost(host string) func(*registry.Service) int {
	return func(s *registry.Service) int { return strings.Compare(s.Host, host) }
}

func byService(a, b ServiceEndpoints) int {
	if c := strings.Compare(a.Host, b.Host); c != 0 {
		return c
	}
	return strings.Compare(a.Namespace, b.Namespace)
}

func byWorkload(a, b *registry.Workload) int { return a.WorkloadKey.Compare(b.WorkloadKey) }

func byAddress(a, b workloadAddress) int {
	if c := a.key().compare(b.key()); c != 0 {
		return c
	}
	return cmp.Or(a.WorkloadKey.Compare(b.WorkloadKey), cmp.Compare(a.index, b.index))
}
