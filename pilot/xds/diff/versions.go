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

// Versions caches the versions in responses with one list of resources. It is safe for concurrent use.
type Versions struct {
	list []*envoy.Resource

	mu       sync.Mutex
	version  string
	clusters weak.Pointer[envoy.Set]
	versions []string // with these clusters, see WithClusters
}

// of reports whether the cache is for this very list.
func (t *Versions) of(list []*envoy.Resource) bool {
	return t != nil && len(list) == len(t.list) && &list[0] == &t.list[0]
}

// Hash returns the result of the function Hash, cached for the list that t was made for.
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

// WithClusters returns the result of the function WithClusters, cached for the list that t was made for. The result
// must not be modified.
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

// Hash returns a hash of the names and versions of resources, independent of their order.
func Hash(resources []*envoy.Resource) string {
	var sum uint64
	for _, r := range resources {
		sum += xxhash.Sum64String(r.Name)*31 ^ xxhash.Sum64String(r.Version)
	}
	return strconv.FormatUint(sum, 16)
}

// WithClusters returns the versions of assignments in responses.
func WithClusters(assignments []*envoy.Resource, clusters envoy.Union) []string {
	return lists.Map(assignments, func(r *envoy.Resource) string { return r.Version + ClusterSuffix(clusters, r.Name) })
}

// ClusterSuffix returns the part of an assignment's version that depends on its cluster. If a stream broke between a
// changed cluster and its assignment, the client resumes with an assignment that was sent with another version of the
// cluster, which the suffix shows.
func ClusterSuffix(clusters envoy.Union, name string) string {
	c := clusters.Get(name)
	if c == nil {
		return ""
	}
	return "." + c.Version[:min(8, len(c.Version))]
}

// OnlyShared reports whether the shared half alone decides about some names.
func OnlyShared(u envoy.Union, some func(name string) bool) bool {
	for r := range u.Own.All {
		if some(r.Name) {
			return false
		}
	}
	return u.Omit == nil
}
