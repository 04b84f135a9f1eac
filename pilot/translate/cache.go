package translate

import (
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"weak"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
)

// generator says how one Set is made: whole, and again in part. Its units are what the Changes of an Index speak of, hosts or places: each resource belongs to one,
// and is made of nothing but what the Index says of that unit, so that a unit of which no change speaks is as it was.
type generator[U comparable] struct {
	all        func(v *view) []*envoy.Resource
	affected   func(c *scope.Dirty) []U                           // the units that changes may reach
	closure    func(v *view, u []U) []U                           // with those whose resources depend on theirs; nil: none do
	partitions func(v *view, all []U) func(u U) []*envoy.Resource // makes some units again: what it returns makes each
	locate     func(u U) locator                                  // finds a unit's resources in a Set
	byHostKey  bool                                               // they are together in the order of tails, not in that of names
	content    bool                                               // the Content of the Set is wanted: it is of virtual hosts
}

// locator tells whether a resource is of a unit: in the order of tails, then names, 0 is.
type locator func(r *envoy.Resource) int

// singlePartition is the recipe of a Set that is made whole whenever stale says so.
func singlePartition(all func(v *view) []*envoy.Resource, stale func(c *scope.Dirty) bool) generator[struct{}] {
	return generator[struct{}]{all: all, affected: func(c *scope.Dirty) []struct{} {
		if stale(c) {
			return make([]struct{}, 1)
		}
		return nil
	}}
}

// setKey names one half of a cohort's Set of one type; of virtual hosts, with the route configuration.
type setKey struct {
	typeURL   string
	route     string
	scope     weak.Pointer[cohort.Scope]
	listeners weak.Pointer[cohort.Listeners]
	inbound   weak.Pointer[cohort.Inbound]
}

// cache holds what was made, by what it was made for, with the revisions in which it is what it is: the next is made from it. What nobody asks for in a while is
// forgotten: each Sidecar that is edited is another scope. Safe for concurrent use.
type cache[K comparable, V interface{ covers(revision uint64) bool }] struct {
	mu         sync.Mutex
	entries    map[K]*cacheEntry[V]
	generation uint64 // Snapshots with which everybody asks for all that they have
	lastFull   uint64 // the revision of the last of them
}

// cacheEntry is one thing through time.
type cacheEntry[V interface{ covers(revision uint64) bool }] struct {
	lastUsed uint64 // when kept.full was so much

	mu       sync.Mutex
	versions []V // oldest first

	cleanups []runtime.Cleanup // of the parts of its key; kept.mu's
}

// stopCleanups takes back what was to be done when parts of the key go.
func (e *cacheEntry[V]) stopCleanups() {
	for _, cleanup := range e.cleanups {
		cleanup.Stop()
	}
}

// span are the revisions from one to another.
type span struct{ from, to uint64 }

func (s span) covers(revision uint64) bool { return s.from <= revision && revision <= s.to }

// version is a Set in some revisions.
type version struct {
	span
	set         *envoy.Set
	byPartition frozen.Table[*envoy.Resource] // the same resources, those of a unit together
	content     envoy.Content
	conflicts   map[any][]conflictNote // problems, by unit
}

// conflictNote is one problem, and what it is about.
type conflictNote struct {
	Conflict
	about string
}

// conflictLog takes the problems of what is being made.
type conflictLog struct {
	partition   any
	byPartition map[any][]conflictNote
	seen        map[any]map[conflictNote]struct{} // by unit, once it has a new one
}

// add notes something of the unit, once.
func (l *conflictLog) add(n conflictNote) {
	seen, ok := l.seen[l.partition]
	if !ok {
		if seen = map[conflictNote]struct{}{}; l.seen == nil {
			l.seen = map[any]map[conflictNote]struct{}{}
		}
		l.seen[l.partition] = seen
		l.byPartition[l.partition] = slices.Clip(l.byPartition[l.partition]) // another version may have it
		for _, had := range l.byPartition[l.partition] {
			seen[had] = struct{}{}
		}
	}
	if _, ok := seen[n]; !ok {
		seen[n] = struct{}{}
		l.byPartition[l.partition] = append(l.byPartition[l.partition], n)
	}
}

// Bounds of what is kept of the past.
const (
	maxVersions   = 2
	maxUnused     = 64  // full Snapshots, between two looks for what nobody asks for
	maxPartitions = 256 // that are made by themselves, beside as many as there are resources; of more the Set is made whole
)

// advance counts a full Snapshot, the newest.
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

// entry gives what is kept for a key, which may be nothing yet. fresh: nobody asked for it before.
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

// evict drops what is kept for a key.
func (c *cache[K, V]) evict(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[key]; e != nil {
		e.stopCleanups()
		delete(c.entries, key)
	}
}

// evictWith has what is kept for a key dropped once nobody has a part of the key any more, if it has that part.
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

// versionAt gives the version of a revision, if there is one.
func (e *cacheEntry[V]) versionAt(revision uint64) (v V, ok bool) {
	for _, v := range slices.Backward(e.versions) {
		if v.covers(revision) {
			return v, true
		}
	}
	return v, false
}

// add keeps the newest version.
func (e *cacheEntry[V]) add(v V) {
	if e.versions = append(e.versions, v); len(e.versions) > maxVersions {
		e.versions = slices.Delete(e.versions, 0, 1)
	}
}

// cachedSet gives a Set in a view. Whoever needs it first makes it, and the others wait. Where that panics it panics for everybody: a Set that is not there must not look empty.
func cachedSet[U comparable](v *view, key setKey, newGenerator func() generator[U]) *version {
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

// newVersion makes the version of a view that has none.
func newVersion[U comparable](v *view, e *cacheEntry[*version], g generator[U]) *version {
	var last *version
	if n := len(e.versions); n > 0 {
		last = e.versions[n-1]
	}
	if last != nil && v.Revision < last.from {
		return g.update(v, e.versions[0]) // of a stream that has fallen far behind
	}
	next := g.update(v, last)
	if next == last { // nothing touched it in between either
		last.to = v.Revision
		return last
	}
	e.add(next)
	return next
}

// update makes the version of a view from another one, mostly that before, nil if there is none.
func (g generator[U]) update(v *view, last *version) *version {
	if last == nil {
		return g.generateAll(v)
	}
	c, ok := v.t.history.since(min(last.to, v.Revision), max(last.from, v.Revision))
	if ok && !c.All {
		affected := g.affected(c)
		if len(affected) == 0 {
			return last
		}
		if g.partitions != nil && len(affected) <= maxPartitions+last.set.Len() {
			if g.closure != nil {
				affected = g.closure(v, affected)
			}
			return g.regenerate(v, last, affected)
		}
	}
	next := g.generateAll(v)
	if next.set.Equal(last.set) {
		next.set = last.set
	}
	return next
}

func (g generator[U]) generateAll(v *view) *version {
	own := *v
	own.conflicts = &conflictLog{byPartition: map[any][]conflictNote{}}
	s := &version{span: span{v.Revision, v.Revision}, set: envoy.NewSet(g.all(&own)), conflicts: own.conflicts.byPartition}
	if s.byPartition = s.set.Table(); g.byHostKey {
		s.byPartition = frozen.TableOf(byHostKey, slices.SortedFunc(s.set.All, byHostKey))
	}
	if g.content {
		for h := range s.set.All {
			s.content.Add(h)
		}
	}
	return s
}

// regenerate makes some units again.
func (g generator[U]) regenerate(v *view, last *version, partitions []U) *version {
	own := *v
	own.conflicts = &conflictLog{byPartition: make(map[any][]conflictNote, len(last.conflicts))}
	for p, list := range last.conflicts {
		own.conflicts.byPartition[p] = list
	}
	for _, p := range partitions {
		delete(own.conflicts.byPartition, p)
		delete(own.conflicts.seen, p)
	}
	var removed, added []*envoy.Resource
	generate := g.partitions(&own, partitions)
	for _, p := range partitions {
		own.conflicts.partition = p
		was, is := slices.Collect(last.byPartition.Where(g.locate(p))), generate(p)
		removed, added = append(removed, difference(was, is)...), append(added, difference(is, was)...)
	}
	s := &version{span: span{v.Revision, v.Revision}, set: last.set, byPartition: last.byPartition, content: last.content, conflicts: own.conflicts.byPartition}
	if len(removed)+len(added) > 0 {
		s.set = last.set.With(removed, added)
		if s.byPartition = s.set.Table(); g.byHostKey {
			s.byPartition = replace(last.byPartition, removed, added)
		}
		if g.content {
			for _, h := range removed {
				s.content.Remove(h)
			}
			for _, h := range added {
				s.content.Add(h)
			}
		}
	}
	return s
}

// difference gives the resources that are not among others.
func difference(list, others []*envoy.Resource) []*envoy.Resource {
	if len(list) == 0 || slices.Equal(list, others) {
		return nil
	}
	among := make(map[*envoy.Resource]struct{}, len(others))
	for _, r := range others {
		among[r] = struct{}{}
	}
	return slices.DeleteFunc(slices.Clone(list), func(r *envoy.Resource) bool { _, ok := among[r]; return ok })
}

// eachPartition makes units by themselves.
func eachPartition[U comparable](generate func(v *view, p U) []*envoy.Resource) func(v *view, all []U) func(p U) []*envoy.Resource {
	return func(v *view, _ []U) func(p U) []*envoy.Resource {
		return func(p U) []*envoy.Resource { return generate(v, p) }
	}
}

// replace gives a list with some resources in the place of others.
func replace(list frozen.Table[*envoy.Resource], removed, added []*envoy.Resource) frozen.Table[*envoy.Resource] {
	e := &frozen.Edit{}
	for _, r := range removed {
		list.Delete(e, r)
	}
	for _, r := range added {
		list.Put(e, r)
	}
	e.Done()
	return list
}

func compareNames(a, b *envoy.Resource) int { return strings.Compare(a.Name, b.Name) }

// hostKeyOf is the host in a cluster's name; other names are their own tails.
func hostKeyOf(name string) string {
	if strings.HasPrefix(name, string(names.Outbound)+"_.") {
		part := strings.SplitN(name, "_.", 4) // the host may have such in it
		return part[len(part)-1]
	}
	return name[strings.LastIndexByte(name, '|')+1:]
}

func compareHostKeys(a, b string) int {
	if c := strings.Compare(hostKeyOf(a), hostKeyOf(b)); c != 0 {
		return c
	}
	return strings.Compare(a, b)
}

func byHostKey(a, b *envoy.Resource) int { return compareHostKeys(a.Name, b.Name) }
