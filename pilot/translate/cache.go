package translate

import (
	"maps"
	"runtime"
	"slices"
	"sync"
	"weak"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// setKey is the cache key of one half of a cohort's Set of one type. A Set of virtual hosts also has its route
// configuration in the key.
type setKey struct {
	typeURL   string
	route     string
	scope     weak.Pointer[cohort.Scope]
	listeners weak.Pointer[cohort.Listeners]
	inbound   weak.Pointer[cohort.Inbound]
}

// cache holds the newest versions of each entry. The next version of an entry is made incrementally from the last one,
// by invalidating what is dirty. An entry is evicted when a part of its key is garbage collected, or when nobody has
// used it for maxUnused full pushes: each edit of a Sidecar makes another scope. Safe for concurrent use.
type cache[K comparable, V interface{ covers(revision uint64) bool }] struct {
	mu         sync.Mutex
	entries    map[K]*cacheEntry[V]
	generation uint64 // the number of full Snapshots so far: with each, every stream asks for everything again
	lastFull   uint64 // the revision of the newest full Snapshot
}

// cacheEntry holds the versions of one cached thing.
type cacheEntry[V interface{ covers(revision uint64) bool }] struct {
	lastUsed uint64 // the cache's generation at its last use

	mu       sync.Mutex
	versions []V // oldest first

	cleanups []runtime.Cleanup // evict the entry with a part of its key; guarded by cache.mu
}

// stopCleanups cancels the cleanups of an entry that is evicted.
func (e *cacheEntry[V]) stopCleanups() {
	for _, cleanup := range e.cleanups {
		cleanup.Stop()
	}
}

// span is a range of revisions, both ends included.
type span struct{ from, to uint64 }

func (s span) covers(revision uint64) bool { return s.from <= revision && revision <= s.to }

// version is a Set as it is in a span of revisions.
type version struct {
	span
	set         *envoy.Set
	byPartition frozen.Table[*envoy.Resource] // the same resources, those of a partition together
	content     envoy.Content
	conflicts   map[any][]conflictNote // by partition
}

// Bounds of the cache.
const (
	maxVersions   = 2
	maxUnused     = 64  // full Snapshots without use after which an entry is evicted, and between two checks
	maxPartitions = 256 // to regenerate, plus one for each resource of the Set; beyond that all of it is generated
)

// advance counts a full Snapshot, the newest one, and evicts unused entries now and then.
func (c *cache[K, V]) advance(revision uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastFull = revision
	if c.generation++; c.generation%maxUnused == 0 {
		maps.DeleteFunc(c.entries, func(_ K, e *cacheEntry[V]) bool {
			unused := e.lastUsed+maxUnused < c.generation
			if unused {
				e.stopCleanups()
			}
			return unused
		})
	}
}

// entry returns the entry of a key and marks it as used. It makes an empty one where there is none; fresh reports that.
func (c *cache[K, V]) entry(key K) (e *cacheEntry[V], fresh bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e = c.entries[key]
	if fresh = e == nil; fresh {
		if e = (&cacheEntry[V]{}); c.entries == nil {
			c.entries = map[K]*cacheEntry[V]{}
		}
		c.entries[key] = e
	}
	e.lastUsed = c.generation
	return e, fresh
}

// evict removes the entry of a key.
func (c *cache[K, V]) evict(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[key]; e != nil {
		e.stopCleanups()
		delete(c.entries, key)
	}
}

// evictWith has the entry of a key evicted when part, a part of the key, is garbage collected. A nil part does nothing.
func evictWith[K comparable, V interface{ covers(revision uint64) bool }, T any](c *cache[K, V], key K, part *T) {
	if part == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[key]; e != nil {
		e.cleanups = append(e.cleanups, runtime.AddCleanup(part, c.evict, key))
	}
}

// versionAt returns the version that covers a revision, if the entry has it.
func (e *cacheEntry[V]) versionAt(revision uint64) (v V, ok bool) {
	for _, v := range slices.Backward(e.versions) {
		if v.covers(revision) {
			return v, true
		}
	}
	return v, false
}

// add appends the newest version and drops the oldest beyond maxVersions.
func (e *cacheEntry[V]) add(v V) {
	if e.versions = append(e.versions, v); len(e.versions) > maxVersions {
		e.versions = slices.Delete(e.versions, 0, 1)
	}
}

// cachedSet returns a Set as it is in a view. The first caller generates it and the others wait. A panic of the
// generator reaches every caller: a Set that could not be made must not look empty.
func cachedSet[P comparable](v *view, key setKey, newGenerator func() generator[P]) *version {
	e, fresh := v.t.sets.entry(key)
	if fresh {
		evictWith(&v.t.sets, key, key.scope.Value())
		evictWith(&v.t.sets, key, key.listeners.Value())
		evictWith(&v.t.sets, key, key.inbound.Value())
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if s, ok := e.versionAt(v.Revision); ok {
		return s
	}
	return newVersion(v, e, newGenerator())
}

// newVersion generates the version of a view that the entry does not have.
func newVersion[P comparable](v *view, e *cacheEntry[*version], g generator[P]) *version {
	var last *version
	if n := len(e.versions); n > 0 {
		last = e.versions[n-1]
	}
	if last != nil && v.Revision < last.from {
		return g.update(v, e.versions[0]) // for a stream that has fallen far behind
	}
	next := g.update(v, last)
	if next == last { // no change in between affected it
		last.to = v.Revision
		return last
	}
	e.add(next)
	return next
}
