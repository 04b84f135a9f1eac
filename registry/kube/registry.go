package kube

import (
	"strings"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/registry"
	"github.com/istiod-lite/istiod-lite/registry/internal/namespaces"
	"github.com/istiod-lite/istiod-lite/registry/internal/selection"
	"github.com/istiod-lite/istiod-lite/registry/internal/set"
)

// Options of a Registry.
type Options struct {
	Domain  string // of service host names; empty is cluster.local
	Cluster string // the cluster's ID
	Remote  bool   // it is not the server's own: the keys of its workloads name it
	// those of the cluster write EndpointSlices: a service without any has no pods
	Controllers bool
	TrustDomain string // of identities; empty is cluster.local
	// whose label topology.istio.io/network names the cluster's network; empty is istio-system
	SystemNamespace string
	Network         func(address string) string // the mesh's list of networks, asked last; nil is none

	// Gateways are what the mesh's list of networks says of services by their host: network and port; address and
	// cluster are empty.
	Gateways map[string][]registry.Gateway
}

// Registry holds what one cluster's objects say. See the package's documentation for who may call it.
type Registry struct {
	opts       Options
	namespaces *namespaces.Table

	services  map[name]*service
	byService map[name]map[string]*slice // by slice name; there before the service is, or without it
	slices    map[name]*slice
	podSlices map[name]*set.Set[*slice]   // slices that name the pod
	ipSlices  map[string]*set.Set[*slice] // slices with that address and no pod's name

	pods     map[name]*pod
	ipPods   map[string]*set.Set[name] // pods that own the address: none of the host network, none that ended
	nodePods map[string]*set.Set[name]
	nodes    map[string]registry.Locality
	entries  map[name]*entry
	gateways gateways

	indexed        bool                         // entrySelectors has the services, as from the first WorkloadEntry
	podSelectors   *selection.Index[name, name] // of services without slices
	entrySelectors *selection.Index[name, name]

	dirty  map[name]struct{}                           // services to look at when the batch ends
	before map[registry.WorkloadKey]*registry.Workload // what was handed on before the batch; nil: nothing

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
	if o.Domain == "" {
		o.Domain = "cluster.local"
	}
	if o.TrustDomain == "" {
		o.TrustDomain = "cluster.local"
	}
	if o.SystemNamespace == "" {
		o.SystemNamespace = "istio-system"
	}
	return &Registry{
		opts: o, namespaces: namespaces.New(o.SystemNamespace, o.Network),
		services: map[name]*service{}, byService: map[name]map[string]*slice{}, slices: map[name]*slice{},
		podSlices: map[name]*set.Set[*slice]{}, ipSlices: map[string]*set.Set[*slice]{},
		pods: map[name]*pod{}, ipPods: map[string]*set.Set[name]{}, nodePods: map[string]*set.Set[name]{},
		nodes: map[string]registry.Locality{}, entries: map[name]*entry{},
		podSelectors: selection.New[name, name](), entrySelectors: selection.New[name, name](),
		dirty: map[name]struct{}{}, before: map[registry.WorkloadKey]*registry.Workload{},
	}
}

// Apply applies a batch of changes and returns what they alter.
func (r *Registry) Apply(changes []kinds.Change) registry.Changes {
	if len(r.before) == 0 && len(changes) > large {
		r.before = make(map[registry.WorkloadKey]*registry.Workload, len(changes))
	}
	for _, c := range changes {
		n := name{c.Namespace, c.Name}
		switch c.Kind {
		case kinds.Service:
			r.applyService(n, c.Object)
			r.applyGateway(n, c.Object)
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

// Service returns the service of that key, or nil.
func (r *Registry) Service(k registry.ServiceKey) *registry.Service {
	if s := r.lookup(k); s != nil {
		return s.now
	}
	return nil
}

// Endpoints returns the endpoints of that service, sorted.
func (r *Registry) Endpoints(k registry.ServiceKey) []*registry.Endpoint {
	if s := r.lookup(k); s != nil {
		return s.endpoints
	}
	return nil
}

// host is the host name of the service of that name.
func (r *Registry) host(n name) string { return n.name + "." + n.namespace + ".svc." + r.opts.Domain }

func (r *Registry) lookup(k registry.ServiceKey) *service {
	short, ok := strings.CutSuffix(k.Host, "."+k.Namespace+".svc."+r.opts.Domain)
	if !ok {
		return nil
	}
	return r.services[name{k.Namespace, short}]
}

// Empty reports whether nothing of the cluster is left.
func (r *Registry) Empty() bool {
	return len(r.services)+len(r.slices)+len(r.pods)+len(r.nodes)+len(r.entries) == 0 && r.namespaces.Empty()
}

// Pending is how many endpoints wait for the pod that their slice names.
func (r *Registry) Pending() int { return r.pending }

// PodsWithoutIP is how many pods run, or are to run, and have no address yet.
func (r *Registry) PodsWithoutIP() int { return r.withoutIP }

// NotReady is how many endpoints are handed on as unhealthy.
func (r *Registry) NotReady() int { return r.notReady }

func (r *Registry) flush() registry.Changes {
	out := registry.Changes{
		Services:  make(map[registry.ServiceKey]*registry.Service, len(r.dirty)),
		Endpoints: make(map[registry.ServiceKey][]*registry.Endpoint, len(r.dirty)),
		Workloads: make(map[registry.WorkloadKey]*registry.Workload, len(r.before)),
	}
	for n := range r.dirty {
		if s := r.services[n]; s != nil {
			r.flushService(n, s, out)
		}
	}
	r.dirty = emptied(r.dirty)
	for key, was := range r.before {
		if now := r.current(key); !was.Equal(now) {
			out.Workloads[key] = now
		}
	}
	r.before = emptied(r.before)
	return out
}

// large is how many changes are many.
const large = 256

// emptied returns an empty map. A large map is replaced by a new one, because it would keep its size.
func emptied[K comparable, V any](m map[K]V) map[K]V {
	if len(m) > large {
		return map[K]V{}
	}
	clear(m)
	return m
}

func (r *Registry) flushService(n name, s *service, out registry.Changes) {
	if s.object == nil {
		delete(r.services, n)
		for _, sl := range r.byService[n] {
			r.unbuild(sl)
		}
		r.notReady -= s.notReady
		if s.now == nil {
			return
		}
		out.Services[s.now.Key()] = nil
		if len(s.endpoints) > 0 {
			out.Endpoints[s.now.Key()] = nil
		}
		return
	}
	if s.stale {
		s.stale = false
		if next := r.convert(s.object); !next.Equal(s.now) {
			s.now, s.families = next, families(s.object)
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
	out.Endpoints[s.now.Key()] = next
	r.notReady -= s.notReady
	s.notReady = 0
	for _, e := range next {
		if e.Health == registry.Unhealthy {
			s.notReady++
		}
	}
	r.notReady += s.notReady
}

// put and drop keep a set in a map of sets; a set without members is not kept.
func put[K, V comparable](m map[K]*set.Set[V], k K, v V) {
	s := m[k]
	if s == nil {
		s = &set.Set[V]{}
		m[k] = s
	}
	s.Add(v)
}

func drop[K, V comparable](m map[K]*set.Set[V], k K, v V) {
	s := m[k]
	if s.Remove(v); s.Len() == 0 {
		delete(m, k)
	}
}
