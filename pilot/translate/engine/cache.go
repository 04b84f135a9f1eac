package engine

import (
	"maps"
	"runtime"
	"slices"
	"sync"
	"weak"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
)

// Cache holds the newest versions of each Set. The next version is made from the last one, by generating again what is
// dirty. An entry is evicted when a part of its key is garbage-collected, or when it has not been used for maxUnused
// full Snapshots, because each edit of a Sidecar makes another scope. The zero value is empty and safe for concurrent
// use.
type Cache struct {
	history history

	mu          sync.Mutex
	entries     map[Key]*entry
	generation  uint64 // number of full Snapshots so far: with Dirty.Compare, for which every stream requests everything again
	lastCompare uint64 // revision of the newest full Snapshot
}

// Key identifies a Set. It holds the parts of a cohort and the list of names weakly.
type Key struct {
	Type      string // URL of the type of resources
	Part      any    // comparable; distinguishes Sets that are equal in all else
	Client    weak.Pointer[cohort.Client]
	Listeners weak.Pointer[cohort.Listeners]
	Inbound   weak.Pointer[cohort.Inbound]
	Patches   weak.Pointer[cohort.Patches]
	names     weak.Pointer[envoy.Names]
}

// entry holds the versions of one Set.
type entry struct {
	lastUsed uint64            // the cache's generation at its last use; guarded by Cache.mu
	cleanups []runtime.Cleanup // evict the entry with a part of its key; guarded by Cache.mu

	mu       sync.Mutex
	versions []*Version // oldest first
}

// Version is a Set as it is in a span of revisions, both ends included.
type Version struct {
	Set     *envoy.Set
	Content envoy.Content // of virtual hosts

	from, to    uint64
	byPartition frozen.Table[*envoy.Resource] // the same resources, ordered by partition
	conflicts   map[any][]note                // conflicts by partition
	elsewhere   frozen.Table[string]          // names that another Set may have
	derived
	failures
}

// Limits of the cache.
const (
	maxVersions   = 2
	maxUnused     = 64  // full Snapshots without use after which an entry is evicted, and between two checks
	maxPartitions = 256 // partitions to regenerate, plus one for each resource of the Set; beyond that the whole Set is generated
)

// Advance records what is dirty in the newest Snapshot. If every stream will request everything again, it occasionally
// evicts unused entries.
func (c *Cache) Advance(revision uint64, d *scope.Dirty) {
	c.history.record(revision, d)
	if !d.Compare {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastCompare = revision
	if c.generation++; c.generation%maxUnused == 0 {
		maps.DeleteFunc(c.entries, func(_ Key, e *entry) bool {
			unused := e.lastUsed+maxUnused < c.generation
			if unused {
				e.stopCleanups()
			}
			return unused
		})
	}
}

// Since returns what is dirty after one revision, up to another. It returns false if that is not known any more.
func (c *Cache) Since(from, to uint64) (*scope.Dirty, bool) { return c.history.since(from, to) }

// MayReassign reports whether a proxy in a namespace may belong to another cohort than it did at an earlier revision.
func (c *Cache) MayReassign(from, to uint64, namespace string) bool {
	return c.history.mayReassign(from, to, namespace)
}

// Len returns the number of Sets.
func (c *Cache) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.entries)
}

// get returns a Set as it is at a revision. generate makes a version from another one, or from nil if there is none.
// The first caller generates and the others wait. A panic of the generator reaches every caller, because a Set that
// could not be made must not look empty.
func (c *Cache) get(k Key, revision uint64, generate func(last *Version) *Version) *Version {
	e := c.entry(k)
	e.mu.Lock()
	defer e.mu.Unlock()
	if v := e.at(revision); v != nil {
		return v
	}
	var last *Version
	if n := len(e.versions); n > 0 {
		last = e.versions[n-1]
	}
	if last != nil && revision < last.from {
		return generate(e.versions[0]) // for a stream that has fallen far behind
	}
	next := generate(last)
	if next == last { // no change in between affected it
		last.to = revision
		return last
	}
	if e.versions = append(e.versions, next); len(e.versions) > maxVersions {
		e.versions = slices.Delete(e.versions, 0, 1)
	}
	return next
}

// cached returns a Set as it is at a revision, or nil if it is not cached.
func (c *Cache) cached(k Key, revision uint64) *Version {
	c.mu.Lock()
	e := c.entries[k]
	if e != nil {
		e.lastUsed = c.generation
	}
	c.mu.Unlock()
	if e == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.at(revision)
}

// at returns the version of a revision, or nil. The caller holds mu.
func (e *entry) at(revision uint64) *Version {
	for _, v := range slices.Backward(e.versions) {
		if v.from <= revision && revision <= v.to {
			return v
		}
	}
	return nil
}

// entry returns the entry of a key, creates it if there is none, and marks it as used.
func (c *Cache) entry(k Key) *entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[k]
	if e == nil {
		if e = (&entry{}); c.entries == nil {
			c.entries = map[Key]*entry{}
		}
		c.entries[k] = e
		evictWith(c, e, k, k.Client.Value())
		evictWith(c, e, k, k.Listeners.Value())
		evictWith(c, e, k, k.Inbound.Value())
		evictWith(c, e, k, k.Patches.Value())
		evictWith(c, e, k, k.names.Value())
	}
	e.lastUsed = c.generation
	return e
}

// evictWith evicts an entry when part, a part of its key, is garbage-collected. It ignores a nil part.
func evictWith[T any](c *Cache, e *entry, k Key, part *T) {
	if part != nil {
		e.cleanups = append(e.cleanups, runtime.AddCleanup(part, c.evict, k))
	}
}

// evict removes the entry of a key.
func (c *Cache) evict(k Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[k]; e != nil {
		e.stopCleanups()
		delete(c.entries, k)
	}
}

// stopCleanups cancels the cleanups of an evicted entry.
func (e *entry) stopCleanups() {
	for _, cleanup := range e.cleanups {
		cleanup.Stop()
	}
}

// Bytes returns the approximate memory, in bytes, of the Sets of some cohorts, without what the Sets of the first of
// them have as well. Resources that several Sets have are counted once. Sets that are being made are left out.
func (c *Cache) Bytes(cohorts []cohort.Key) (n int) {
	if len(cohorts) == 0 {
		return 0
	}
	seen := map[*envoy.Resource]struct{}{}
	add := func(list []*entry) {
		for _, e := range list {
			if !e.mu.TryLock() {
				continue
			}
			var set *envoy.Set
			if k := len(e.versions); k > 0 {
				set = e.versions[k-1].Set
			}
			e.mu.Unlock()
			n += set.Len() * placeCost
			for r := range set.All {
				if _, ok := seen[r]; !ok {
					seen[r] = struct{}{}
					n += r.Cost()
				}
			}
		}
	}
	first := c.entriesOf(cohorts[:1], nil)
	add(slices.Collect(maps.Keys(first)))
	n = 0
	add(slices.Collect(maps.Keys(c.entriesOf(cohorts, first))))
	return n
}

// placeCost is the approximate memory, in bytes, for a resource in the tables of a Set and of its Version.
const placeCost = 24

// entriesOf returns the entries whose keys have parts of some cohorts only, and at least one, except for others.
func (c *Cache) entriesOf(cohorts []cohort.Key, others map[*entry]struct{}) map[*entry]struct{} {
	var none Key
	clients, listeners := map[weak.Pointer[cohort.Client]]bool{none.Client: true},
		map[weak.Pointer[cohort.Listeners]]bool{none.Listeners: true}
	inbounds, patches := map[weak.Pointer[cohort.Inbound]]bool{none.Inbound: true}, map[weak.Pointer[cohort.Patches]]bool{none.Patches: true}
	for _, k := range cohorts {
		clients[k.Client.Weak()], listeners[k.Listeners.Weak()] = true, true
		inbounds[k.Inbound.Weak()], patches[k.Patches.Weak()] = true, true
	}
	out := map[*entry]struct{}{}
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, e := range c.entries {
		if _, other := others[e]; other || !clients[k.Client] || !listeners[k.Listeners] || !inbounds[k.Inbound] || !patches[k.Patches] {
			continue
		}
		if k.Client != none.Client || k.Listeners != none.Listeners || k.Inbound != none.Inbound || k.Patches != none.Patches {
			out[e] = struct{}{}
		}
	}
	return out
}

// has reports whether there is an entry for a key.
func (c *Cache) has(k Key) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.entries[k] != nil
}

// between returns what is dirty between a version and a revision, earlier or later. It returns false if everything may
// be dirty.
func (c *Cache) between(v *Version, revision uint64) (*scope.Dirty, bool) {
	d, ok := c.history.since(min(v.to, revision), max(v.from, revision))
	return d, ok && !d.All
}
