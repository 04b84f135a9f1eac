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

// Snapshot is one immutable revision of everything that a translation may read. It corresponds to Istio's PushContext.
type Snapshot struct {
	Revision uint64 // number of the commit, from 1
	Diff     Diff

	Mesh     *mesh.Config // immutable, so that pointers can be compared
	Networks *Networks    // immutable; nil if there is only one network
	Shared   *SharedSecrets
	Domain   string // such as cluster.local
	Cluster  string // ID of the server's own cluster
	OneStore bool   // see Options
	Settings

	RepeatedText, HostClusters int // see limits.Limits

	tables
	roots     frozen.List[string]
	rootsRead Found // called at each look-up of roots in a traced Snapshot; else nil
	reach     map[*kinds.Kind]Reach
	cached    *sync.Map // values of Cached, by owner
}

// ClusterAddress is an address in a cluster. The cluster's ID is empty for the server's own. Clusters may use the same
// addresses.
type ClusterAddress struct{ Cluster, Address string }

// Endpoints are the endpoints of one service.
type Endpoints struct {
	EndpointSummary
	List            []*registry.Endpoint // sorted by registry.CompareEndpoints
	NetworkClusters []NetworkCluster     // without duplicates
	Confined        bool                 // some endpoints are for proxies of their own cluster only
}

// EndpointSummary is the part of a service's endpoints that clusters depend on.
type EndpointSummary struct {
	Identities frozen.List[string] // distinct SPIFFE IDs, sorted
	TLS        TLS
}

// NetworkCluster is a cluster's part of a network.
type NetworkCluster struct{ Network, Cluster string }

// distinct returns a list without duplicates, in the order of first occurrence.
func distinct(list []NetworkCluster) []NetworkCluster {
	if len(list) < 2 {
		return list
	}
	seen := map[NetworkCluster]bool{}
	return slices.Clone(slices.DeleteFunc(list, func(nc NetworkCluster) bool {
		duplicate := seen[nc]
		seen[nc] = true
		return duplicate
	}))
}

// ByPort returns the endpoints of a service port, by its name.
func (e *Endpoints) ByPort(port string) []*registry.Endpoint {
	from, _ := slices.BinarySearchFunc(e.List, port, comparePort)
	return e.List[from : from+sort.Search(len(e.List)-from, func(i int) bool { return comparePort(e.List[from+i], port) > 0 })]
}

func comparePort(e *registry.Endpoint, port string) int { return strings.Compare(e.ServicePort, port) }

// TLS says which endpoints of a service accept mTLS.
type TLS int

// Values of TLS.
const (
	NoTLS   TLS = iota // none
	SomeTLS            // at least one
	AllTLS             // each one
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
		e.Confined = e.Confined || p.SameCluster
	}
	e.NetworkClusters = distinct(e.NetworkClusters)
	slices.Sort(ids)
	e.Identities = frozen.ListOf(slices.Compact(ids)...)
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

// Cached returns the owner's value for this Snapshot. It calls make once for each owner and keeps the value as long as
// the Snapshot. It is safe for concurrent use.
func (s *Snapshot) Cached(owner any, make func(*Snapshot) any) any {
	once, ok := s.cached.Load(owner)
	if !ok {
		once, _ = s.cached.LoadOrStore(owner, sync.OnceValue(func() any { return make(s) }))
	}
	return once.(func() any)()
}

// Services returns all services by precedence: oldest first, ties by name and namespace.
func (s *Snapshot) Services() []*registry.Service {
	all := make([]*registry.Service, 0, s.services.Len())
	for svc := range s.services.All {
		all = append(all, svc)
	}
	return all
}

// EachService calls yield with every service by precedence.
func (s *Snapshot) EachService(yield func(*registry.Service) bool) { s.services.All(yield) }

// ServicesMatching returns the services for which match returns true, by precedence. It iterates over all services.
func (s *Snapshot) ServicesMatching(match func(*registry.Service) bool) iter.Seq[*registry.Service] {
	return s.services.Matching(match)
}

// ServiceCount returns the number of services.
func (s *Snapshot) ServiceCount() int { return s.services.Len() }

// ServicesByHost returns the services of a host in all namespaces, by precedence.
func (s *Snapshot) ServicesByHost(host string) iter.Seq[*registry.Service] {
	return s.hosts.Where(withHost(host))
}

// ServicesByHostPrefix returns the services whose hosts begin with a prefix, by host.
func (s *Snapshot) ServicesByHostPrefix(prefix string) iter.Seq[*registry.Service] {
	return s.hosts.Where(func(x *registry.Service) int { return frozen.ComparePrefix(x.Host, prefix) })
}

// WorkloadByAddress returns the workload with an address in a cluster, or nil. The cluster is as returned by
// ClusterKey.
func (s *Snapshot) WorkloadByAddress(cluster, ip string) *registry.Workload {
	return s.workloadByAddress(ClusterAddress{cluster, ip})
}

// ClusterKey returns a cluster's ID as used in keys: empty for the server's own.
func (s *Snapshot) ClusterKey(id string) string {
	if id == s.Cluster {
		return ""
	}
	return id
}

// SecretsOf returns the cluster whose Secrets and ConfigMaps the proxies of a cluster are sent: their own, unless all
// proxies share one store. Both clusters are as in keys.
func (s *Snapshot) SecretsOf(cluster string) string {
	if s.OneStore {
		return ""
	}
	return cluster
}

// Objects returns the objects of one kind in one namespace by precedence: oldest first, ties by name.
func (s *Snapshot) Objects(kind *kinds.Kind, ns string) []*kinds.Object {
	return slices.Collect(s.objects[kind].byNamespace.Where(func(o *kinds.Object) int { return strings.Compare(o.Namespace, ns) }))
}

// AllObjects returns the objects of one kind in all namespaces by precedence: oldest first, ties by name and namespace.
func (s *Snapshot) AllObjects(kind *kinds.Kind) []*kinds.Object {
	return slices.Collect(s.objects[kind].byPrecedence.All)
}

// ObjectCount returns the number of objects of one kind.
func (s *Snapshot) ObjectCount(kind *kinds.Kind) int { return s.objects[kind].byPrecedence.Len() }

// HasObjects reports whether there may be objects of a kind. It always returns true for a traced Snapshot.
func (s *Snapshot) HasObjects(kind *kinds.Kind) bool { return !s.objects[kind].byPrecedence.Empty() }

// Reach returns which proxies a change of an object of a kind affects. Translations must not read kinds with the reach
// Unread.
func (s *Snapshot) Reach(k *kinds.Kind) Reach {
	if s.reach == nil {
		return Everywhere
	}
	return s.reach[k]
}

// Subscribed reports whether objects of a kind affect only the proxies that name them.
func (s *Snapshot) Subscribed(k *kinds.Kind) bool { return s.reach[k] == Subscribed }

// RootNamespace returns the namespace of mesh-wide policies.
func (s *Snapshot) RootNamespace() string { return s.Mesh.GetRootNamespace() }

// Roots returns the roots that proxies trust besides the issuer of their own certificates, as PEM texts. It is empty if
// none are sent.
func (s *Snapshot) Roots() frozen.List[string] {
	if s.rootsRead != nil {
		s.rootsRead("roots", s.roots)
	}
	return s.roots
}

// EachEndpoints calls yield with every service's key and endpoints.
func (s *Snapshot) EachEndpoints(yield func(registry.ServiceKey, *Endpoints) bool) {
	for e := range s.endpoints.All {
		if !yield(e.ServiceKey, e.Endpoints) {
			return
		}
	}
}
