package snapshot

import (
	"iter"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/registry"
)

// Snapshot is one revision of the world: everything a translation may read. It takes the place of Istio's PushContext.
type Snapshot struct {
	Revision uint64 // counts commits, from 1
	Diff     Diff

	Mesh     *mesh.Config // replaced, never changed: comparable by pointer
	Networks *Networks    // replaced, never changed; nil where there is but one
	Domain   string       // cluster.local
	Cluster  string       // the ID of the server's own cluster

	RepeatedText, HostClusters int // the limits of those names

	tables
	derived *sync.Map // by who worked it out
}

// ClusterAddress is an address in a cluster, whose ID is empty for the server's own: clusters may use the same ones.
type ClusterAddress struct{ Cluster, Address string }

// Endpoints are those of one service, with what clusters need to know of them.
type Endpoints struct {
	List            []*registry.Endpoint // sorted by registry.CompareEndpoints
	Identities      string               // the distinct SPIFFE IDs, sorted, a newline after each
	TLS             TLS
	NetworkClusters []NetworkCluster // each once
}

// NetworkCluster is a cluster's part of a network.
type NetworkCluster struct{ Network, Cluster string }

// distinct returns what is in a list, in the order in which it comes there first.
func distinct(sites []NetworkCluster) []NetworkCluster {
	if len(sites) < 2 {
		return sites
	}
	seen := map[NetworkCluster]bool{}
	return slices.Clone(slices.DeleteFunc(sites, func(at NetworkCluster) bool {
		had := seen[at]
		seen[at] = true
		return had
	}))
}

// ByPort returns the endpoints of a service port, by its name.
func (e *Endpoints) ByPort(port string) []*registry.Endpoint {
	from, _ := slices.BinarySearchFunc(e.List, port, byPort)
	return e.List[from : from+sort.Search(len(e.List)-from, func(i int) bool { return byPort(e.List[from+i], port) > 0 })]
}

func byPort(e *registry.Endpoint, port string) int { return strings.Compare(e.ServicePort, port) }

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
		if at := (NetworkCluster{p.Network, p.Cluster}); len(e.NetworkClusters) == 0 || e.NetworkClusters[len(e.NetworkClusters)-1] != at {
			e.NetworkClusters = append(e.NetworkClusters, at)
		}
		if p.Identity != "" {
			ids = append(ids, p.Identity)
		}
		if p.TLSMode != "" {
			with++
		}
	}
	e.NetworkClusters = distinct(e.NetworkClusters)
	slices.Sort(ids)
	if ids = slices.Compact(ids); len(ids) > 0 {
		e.Identities = strings.Join(ids, "\n") + "\n"
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
func (s *Snapshot) Derived(owner any, make func(*Snapshot) any) any {
	once, ok := s.derived.Load(owner)
	if !ok {
		once, _ = s.derived.LoadOrStore(owner, sync.OnceValue(func() any { return make(s) }))
	}
	return once.(func() any)()
}

// Services gives all services by precedence: oldest first, ties by name and namespace.
func (s *Snapshot) Services() []*registry.Service {
	all := make([]*registry.Service, 0, s.services.Len())
	for svc := range s.services.All {
		all = append(all, svc)
	}
	return all
}

// EachService calls yield with every service by precedence.
func (s *Snapshot) EachService(yield func(*registry.Service) bool) { s.services.All(yield) }

// ServiceCount is the number of services.
func (s *Snapshot) ServiceCount() int { return s.services.Len() }

// ServicesByHost gives the services of that host by precedence, of whatever namespace.
func (s *Snapshot) ServicesByHost(host string) iter.Seq[*registry.Service] {
	return s.hosts.Where(atHost(host))
}

// ServicesByHostPrefix gives the services whose hosts begin so, by host.
func (s *Snapshot) ServicesByHostPrefix(prefix string) iter.Seq[*registry.Service] {
	return s.hosts.Where(func(x *registry.Service) int { return frozen.ComparePrefix(x.Host, prefix) })
}

// WorkloadByAddress gives the workload of a cluster, as ClusterKey gives it, whose own address that is, or nil.
func (s *Snapshot) WorkloadByAddress(cluster, ip string) *registry.Workload {
	return s.workloadAt(ClusterAddress{cluster, ip})
}

// ClusterKey gives a cluster's ID as keys have it: the server's own is empty. Whoever names none is of the own.
func (s *Snapshot) ClusterKey(id string) string {
	if id == s.Cluster {
		return ""
	}
	return id
}

// Objects gives the objects of one kind in one namespace by precedence: oldest first, ties by name.
func (s *Snapshot) Objects(kind *kinds.Kind, ns string) []*kinds.Object {
	return slices.Collect(s.objects[kind].byNamespace.Where(func(o *kinds.Object) int { return strings.Compare(o.Namespace, ns) }))
}

// AllObjects gives the objects of one kind in every namespace by precedence: oldest first, ties by name and namespace.
func (s *Snapshot) AllObjects(kind *kinds.Kind) []*kinds.Object {
	return slices.Collect(s.objects[kind].byPrecedence.All)
}

// ObjectCount is the number of objects of one kind.
func (s *Snapshot) ObjectCount(kind *kinds.Kind) int { return s.objects[kind].byPrecedence.Len() }

// RootNamespace is where mesh-wide policies live.
func (s *Snapshot) RootNamespace() string { return s.Mesh.GetRootNamespace() }

// EachEndpoints calls yield with every service's key and endpoints.
func (s *Snapshot) EachEndpoints(yield func(registry.ServiceKey, *Endpoints) bool) {
	for e := range s.endpoints.All {
		if !yield(e.ServiceKey, e.Endpoints) {
			return
		}
	}
}
