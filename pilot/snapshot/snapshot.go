package snapshot

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/registry"
)

// Snapshot is one revision of the world: everything a translation may read. It takes the place of Istio's PushContext.
type Snapshot struct {
	Revision uint64 // counts commits, from 1
	Delta    Delta

	Mesh    *mesh.Config // replaced, never changed: comparable by pointer
	Domain  string       // cluster.local
	Cluster string       // the ID of the server's own cluster

	namespaces map[string]*namespace
	services   []*registry.Service            // by precedence: oldest first
	byHost     map[string][]*registry.Service // by precedence
	byAddress  map[Place]*registry.Workload
	derived    *sync.Map // by who worked it out
}

// Place is an address in a cluster, whose ID is empty for the server's own: clusters may use the same ones.
type Place struct{ Cluster, Address string }

// namespace holds what lives in one namespace. A commit copies those that it touches.
type namespace struct {
	services  map[string]*registry.Service // by host
	endpoints map[string]*Endpoints        // by host
	workloads map[registry.WorkloadKey]*registry.Workload
	objects   map[*kinds.Kind]*objects
}

// objects of one kind in one namespace, by precedence and by name.
type objects struct {
	sorted []*kinds.Object
	byName map[string]*kinds.Object
}

// Endpoints are those of one service, with what clusters need to know of them.
type Endpoints struct {
	List       []*registry.Endpoint
	Identities string // the distinct SPIFFE IDs, sorted, a newline after each
	TLS        TLS
}

// TLS says which endpoints of a service take mTLS.
type TLS int

// Values of TLS.
const (
	NoTLS   TLS = iota // none, or there are no endpoints
	SomeTLS            // some
	AllTLS             // every one
)

func newEndpoints(list []*registry.Endpoint) *Endpoints {
	e := &Endpoints{List: list}
	var ids []string
	with := 0
	for _, p := range list {
		if p.Identity != "" {
			ids = append(ids, p.Identity)
		}
		if p.TLSMode != "" {
			with++
		}
	}
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		e.Identities += id + "\n"
	}
	switch {
	case with == 0:
	case with == len(list):
		e.TLS = AllTLS
	default:
		e.TLS = SomeTLS
	}
	return e
}

var noEndpoints = &Endpoints{}

// Derived gives what owner worked out of this Snapshot, by make if it did not yet: it lives as long as the Snapshot does. Safe for concurrent use.
func (s *Snapshot) Derived(owner any, make func() any) any {
	once, ok := s.derived.Load(owner)
	if !ok {
		once, _ = s.derived.LoadOrStore(owner, sync.OnceValue(make))
	}
	return once.(func() any)()
}

// Services gives all services by precedence: oldest first, ties by name and namespace. The caller must not change the slice.
func (s *Snapshot) Services() []*registry.Service { return s.services }

// ServicesByHost gives the services of that host by precedence, of whatever namespace.
func (s *Snapshot) ServicesByHost(host string) []*registry.Service { return s.byHost[host] }

// Service gives one service, or nil.
func (s *Snapshot) Service(k registry.ServiceKey) *registry.Service {
	if n := s.namespaces[k.Namespace]; n != nil {
		return n.services[k.Host]
	}
	return nil
}

// Endpoints gives those of one service; never nil.
func (s *Snapshot) Endpoints(k registry.ServiceKey) *Endpoints {
	if n := s.namespaces[k.Namespace]; n != nil {
		if e := n.endpoints[k.Host]; e != nil {
			return e
		}
	}
	return noEndpoints
}

// Workload gives a workload by kind, namespace and name, or nil.
func (s *Snapshot) Workload(k registry.WorkloadKey) *registry.Workload {
	if n := s.namespaces[k.Namespace]; n != nil {
		return n.workloads[k]
	}
	return nil
}

// WorkloadByAddress gives the workload of a cluster, as ClusterKey gives it, whose own address that is, or nil.
func (s *Snapshot) WorkloadByAddress(cluster, ip string) *registry.Workload {
	return s.byAddress[Place{cluster, ip}]
}

// ClusterKey gives a cluster's ID as keys have it: the server's own is empty. Whoever names none is of the own.
func (s *Snapshot) ClusterKey(id string) string {
	if id == s.Cluster {
		return ""
	}
	return id
}

// Object gives one configuration object, or nil.
func (s *Snapshot) Object(k kinds.Key) *kinds.Object {
	if n := s.namespaces[k.Namespace]; n != nil {
		if o := n.objects[k.Kind]; o != nil {
			return o.byName[k.Name]
		}
	}
	return nil
}

// Objects gives the objects of one kind in one namespace by precedence: oldest first, ties by name. The caller must not change the slice.
func (s *Snapshot) Objects(kind *kinds.Kind, ns string) []*kinds.Object {
	if n := s.namespaces[ns]; n != nil {
		if o := n.objects[kind]; o != nil {
			return o.sorted
		}
	}
	return nil
}

// AllObjects gives the objects of one kind in every namespace by precedence: oldest first, ties by name and namespace.
func (s *Snapshot) AllObjects(kind *kinds.Kind) []*kinds.Object {
	var all []*kinds.Object
	for _, n := range s.namespaces {
		if o := n.objects[kind]; o != nil {
			all = append(all, o.sorted...)
		}
	}
	slices.SortFunc(all, byPrecedence)
	return all
}

// RootNamespace is where mesh-wide policies live.
func (s *Snapshot) RootNamespace() string { return s.Mesh.GetRootNamespace() }

// EachEndpoints calls yield with every service's key and endpoints, in no order.
func (s *Snapshot) EachEndpoints(yield func(registry.ServiceKey, *Endpoints) bool) {
	for name, n := range s.namespaces {
		for host, e := range n.endpoints {
			if !yield(registry.ServiceKey{Namespace: name, Host: host}, e) {
				return
			}
		}
	}
}

func byPrecedence(a, b *kinds.Object) int {
	return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.Name, b.Name), strings.Compare(a.Namespace, b.Namespace))
}

func byServicePrecedence(a, b *registry.Service) int {
	return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.Name, b.Name), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Host, b.Host))
}
