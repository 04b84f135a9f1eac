package diff

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"weak"

	"github.com/cespare/xxhash/v2"

	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// Versions holds the versions that responses state for one list of resources, for all streams that are sent this
// list. Safe for concurrent use.
type Versions struct {
	list []*envoy.Resource

	mu       sync.Mutex
	version  string
	clusters weak.Pointer[envoy.Set]
	versions []string // with those clusters, see WithClusters
}

// of reports whether the cache is of this very list.
func (t *Versions) of(list []*envoy.Resource) bool {
	return t != nil && len(list) == len(t.list) && &list[0] == &t.list[0]
}

// Hash is the function Hash, computed once for the list that t was made for.
func (t *Versions) Hash(list []*envoy.Resource) string {
	if !t.of(list) {
		return Hash(list)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.version == "" {
		t.version = Hash(list)
	}
	return t.version
}

// WithClusters is the function WithClusters, computed once for the list that t was made for. Nobody changes the result.
func (t *Versions) WithClusters(list []*envoy.Resource, clusters envoy.Union) []string {
	if !t.of(list) || !OnlyShared(clusters, func(name string) bool { return Holds(list, name) }) {
		return WithClusters(list, clusters)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if k := weak.Make(clusters.Shared); t.versions == nil || t.clusters != k {
		t.clusters, t.versions = k, WithClusters(list, clusters)
	}
	return t.versions
}

// Holds reports whether a sorted list has a resource of that name.
func Holds(list []*envoy.Resource, name string) bool {
	_, ok := slices.BinarySearchFunc(list, name, func(r *envoy.Resource, n string) int { return strings.Compare(r.Name, n) })
	return ok
}

// Hash is the hash of the names and versions of resources, whatever their order.
func Hash(resources []*envoy.Resource) string {
	var sum uint64
	for _, r := range resources {
		sum += xxhash.Sum64String(r.Name)*31 ^ xxhash.Sum64String(r.Version)
	}
	return strconv.FormatUint(sum, 16)
}

// WithClusters returns the versions of assignments as a client is sent them.
func WithClusters(assignments []*envoy.Resource, clusters envoy.Union) []string {
	return lists.Map(assignments, func(r *envoy.Resource) string { return r.Version + ClusterSuffix(clusters, r.Name) })
}

// ClusterSuffix returns what the version of an assignment states about its cluster. A client whose stream broke between
// a changed cluster and its assignment shows it so when it resumes: it names an assignment that was sent with another
// version of the cluster.
func ClusterSuffix(clusters envoy.Union, name string) string {
	c := clusters.Get(name)
	if c == nil {
		return ""
	}
	return "." + c.Version[:min(8, len(c.Version))]
}

// OnlyShared reports whether some names can be looked up in the shared half alone.
func OnlyShared(u envoy.Union, some func(name string) bool) bool {
	for r := range u.Own.All {
		if some(r.Name) {
			return false
		}
	}
	return u.Omit == nil
}
