package kube

import (
	"cmp"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/registry"
	"github.com/istiod-lite/istiod-lite/registry/internal/namespaces"
	"github.com/istiod-lite/istiod-lite/registry/internal/selection"
	"github.com/istiod-lite/istiod-lite/registry/internal/set"
)

// Options configures a Registry.
type Options struct {
	Domain  string // DNS domain of services; empty for cluster.local
	Cluster string // ID of the cluster
	Remote  bool   // whether the cluster is remote: then the keys of its workloads have its ID
	// Controllers says that the cluster's controllers write EndpointSlices, so that a service without slices has no
	// pods.
	Controllers bool
	TrustDomain string // trust domain of identities; empty for cluster.local
	// SystemNamespace is the namespace whose label topology.istio.io/network is the cluster's network. If it is empty,
	// it is istio-system.
	SystemNamespace string
	Networks        *mesh.ClusterNetworks // the mesh's list of networks, used last; nil if there is none

	// Gateways are the services, by host, that the mesh's list of networks names as gateways. Their address and cluster
	// are empty.
	Gateways map[string][]registry.Gateway
}

// Registry derives services, endpoints and workloads from one cluster's objects. One goroutine uses it.
type Registry struct {
	opts       Options
	namespaces *namespaces.Table

	services  map[name]*service
	byService map[name]map[string]*slice // slices of a service by name; may exist before or without the service
	slices    map[name]*slice
	podSlices map[name]*set.Set[*slice]   // slices that name the pod
	ipSlices  map[string]*set.Set[*slice] // slices that have the address and name no pod

	pods     map[name]*pod
	ipPods   map[string]*set.Set[name] // pods that own the address, without those of the host network and ended ones
	nodePods map[string]*set.Set[name]
	nodes    map[string]registry.Locality
	entries  map[name]*entry
	gateways gateways

	indexed        bool                         // entrySelectors has the services; true from the first WorkloadEntry on
	podSelectors   *selection.Index[name, name] // selectors of services without slices
	entrySelectors *selection.Index[name, name]

	dirty        map[name]struct{}                           // services to update at the end of the batch
	oldWorkloads map[registry.WorkloadKey]*registry.Workload // workloads as returned before the batch; nil for new ones

	pending, withoutIP, notReady int
}

type name struct{ namespace, name string }

func (n name) compare(o name) int {
	if c := strings.Compare(n.namespace, o.namespace); c != 0 {
		return c
	}
	return strings.Compare(n.name, o.name)
}

// New returns an empty registry.
func New(o Options) *Registry {
	o.Domain = cmp.Or(o.Domain, "cluster.local")
	o.TrustDomain = cmp.Or(o.TrustDomain, "cluster.local")
	o.SystemNamespace = cmp.Or(o.SystemNamespace, "istio-system")
	return &Registry{
		opts: o, namespaces: namespaces.New(o.SystemNamespace, o.Networks),
		services: map[name]*service{}, byService: map[name]map[string]*slice{}, slices: map[name]*slice{},
		podSlices: map[name]*set.Set[*slice]{}, ipSlices: map[string]*set.Set[*slice]{},
		pods: map[name]*pod{}, ipPods: map[string]*set.Set[name]{}, nodePods: map[string]*set.Set[name]{},
		nodes: map[string]registry.Locality{}, entries: map[name]*entry{},
		podSelectors: selection.New[name, name](), entrySelectors: selection.New[name, name](),
		dirty: map[name]struct{}{}, oldWorkloads: map[registry.WorkloadKey]*registry.Workload{},
	}
}

// Apply applies a batch of changes and returns what they alter.
func (r *Registry) Apply(changes []kinds.Change) registry.Changes {
	if len(r.oldWorkloads) == 0 && len(changes) > largeBatch {
		r.oldWorkloads = make(map[registry.WorkloadKey]*registry.Workload, len(changes))
	}
	for _, c := range changes {
		n := name{c.Namespace, c.Name}
		switch c.Kind {
		case kinds.Service:
			r.applyService(n, c.Object)
			r.applyGateway(n, c.Object)
		case kinds.KubeGateway:
			r.applyGatewayResource(n, c.Object)
		case kinds.EndpointSlice:
			r.applySlice(n, c.Object)
		case kinds.Pod:
			r.applyPod(n, c.Object)
		case kinds.Node:
			r.applyNode(c.Name, c.Object)
			r.applyGatewayNode(c.Name, c.Object)
		case kinds.Namespace:
			r.applyNamespace(c)
		case kinds.WorkloadEntry:
			r.applyEntry(n, c.Object)
		}
	}
	return r.flush()
}

// Service returns the service of a key, or nil.
func (r *Registry) Service(k registry.ServiceKey) *registry.Service {
	if s := r.lookup(k); s != nil {
		return s.current
	}
	return nil
}

// Endpoints returns the endpoints of a service, sorted.
func (r *Registry) Endpoints(k registry.ServiceKey) []*registry.Endpoint {
	if s := r.lookup(k); s != nil {
		return s.endpoints
	}
	return nil
}

// host returns the host of a service by its name.
func (r *Registry) host(n name) string { return n.name + "." + n.namespace + ".svc." + r.opts.Domain }

func (r *Registry) lookup(k registry.ServiceKey) *service {
	short, ok := strings.CutSuffix(k.Host, "."+k.Namespace+".svc."+r.opts.Domain)
	if !ok {
		return nil
	}
	return r.services[name{k.Namespace, short}]
}

// Empty reports whether the registry has no objects.
func (r *Registry) Empty() bool {
	return len(r.services)+len(r.slices)+len(r.pods)+len(r.nodes)+len(r.entries) == 0 && r.namespaces.Empty()
}

// Pending returns how many endpoints wait for the pod that their slice names.
func (r *Registry) Pending() int { return r.pending }

// PodsWithoutIP returns how many pods are running or pending without an address.
func (r *Registry) PodsWithoutIP() int { return r.withoutIP }

// NotReady returns how many endpoints are unhealthy.
func (r *Registry) NotReady() int { return r.notReady }

func (r *Registry) flush() registry.Changes {
	out := registry.Changes{
		Services:  make(map[registry.ServiceKey]*registry.Service, len(r.dirty)),
		Endpoints: make(map[registry.ServiceKey][]*registry.Endpoint, len(r.dirty)),
		Workloads: make(map[registry.WorkloadKey]*registry.Workload, len(r.oldWorkloads)),
	}
	for n := range r.dirty {
		if s := r.services[n]; s != nil {
			r.flushService(n, s, out)
		}
	}
	r.dirty = reset(r.dirty)
	for key, was := range r.oldWorkloads {
		if now := r.currentWorkload(key); !was.Equal(now) {
			out.Workloads[key] = now
		}
	}
	r.oldWorkloads = reset(r.oldWorkloads)
	return out
}

// largeBatch is the number of changes above which a map is replaced instead of cleared.
const largeBatch = 256

// reset returns an empty map. It replaces a large one, because a cleared map keeps its size.
func reset[K comparable, V any](m map[K]V) map[K]V {
	if len(m) > largeBatch {
		return map[K]V{}
	}
	clear(m)
	return m
}

func (r *Registry) flushService(n name, s *service, out registry.Changes) {
	if s.object == nil {
		delete(r.services, n)
		for _, sl := range r.byService[n] {
			r.discardEndpoints(sl)
		}
		r.notReady -= s.notReady
		if s.current == nil {
			return
		}
		out.Services[s.current.Key()] = nil
		if len(s.endpoints) > 0 {
			out.Endpoints[s.current.Key()] = nil
		}
		return
	}
	if s.stale {
		s.stale = false
		if next := r.convert(s.object); !next.Equal(s.current) {
			s.current, s.families = next, families(s.object)
			out.Services[next.Key()] = next
			for _, sl := range r.byService[n] {
				sl.stale = true
			}
		}
	}
	next, same := registry.ReuseEndpoints(s.endpoints, r.endpointsOf(n, s))
	if same {
		return
	}
	s.endpoints = next
	out.Endpoints[s.current.Key()] = next
	r.notReady -= s.notReady
	s.notReady = 0
	for _, e := range next {
		if e.Health == registry.Unhealthy {
			s.notReady++
		}
	}
	r.notReady += s.notReady
}

// addTo adds to a set in a map of sets, and removeFrom removes from it. Empty sets are deleted.
func addTo[K, V comparable](m map[K]*set.Set[V], k K, v V) {
	s := m[k]
	if s == nil {
		s = &set.Set[V]{}
		m[k] = s
	}
	s.Add(v)
}

func removeFrom[K, V comparable](m map[K]*set.Set[V], k K, v V) {
	s := m[k]
	if s.Remove(v); s.Len() == 0 {
		delete(m, k)
	}
}
