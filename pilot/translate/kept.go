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

// recipe says how one Set is made: whole, and again in part. Its units are what the Changes of an Index speak of, hosts or places: each resource belongs to one,
// and is made of nothing but what the Index says of that unit, so that a unit of which no change speaks is as it was.
type recipe[U comparable] struct {
	whole   func(v *view) []*envoy.Resource
	touched func(c *scope.Dirty) []U                           // the units that changes may reach
	spread  func(v *view, u []U) []U                           // with those whose resources depend on theirs; nil: none do
	units   func(v *view, all []U) func(u U) []*envoy.Resource // makes some units again: what it returns makes each
	of      func(u U) unitOf                                   // finds a unit's resources in a Set
	byTail  bool                                               // they are together in the order of tails, not in that of names
	content bool                                               // the Content of the Set is wanted: it is of virtual hosts
}

// unitOf tells whether a resource is of a unit: in the order of tails, then names, 0 is.
type unitOf func(r *envoy.Resource) int

// coarse is the recipe of a Set that is made whole whenever stale says so.
func coarse(whole func(v *view) []*envoy.Resource, stale func(c *scope.Dirty) bool) recipe[struct{}] {
	return recipe[struct{}]{whole: whole, touched: func(c *scope.Dirty) []struct{} {
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

// kept holds what was made, by what it was made for, with the revisions in which it is what it is: the next is made from it. What nobody asks for in a while is
// forgotten: each Sidecar that is edited is another scope. Safe for concurrent use.
type kept[K comparable, V interface{ covers(revision uint64) bool }] struct {
	mu   sync.Mutex
	made map[K]*keptVersions[V]
	full uint64 // Snapshots with which everybody asks for all that they have
	last uint64 // the revision of the last of them
}

// keptVersions is one thing through time.
type keptVersions[V interface{ covers(revision uint64) bool }] struct {
	used uint64 // when kept.full was so much

	mu       sync.Mutex
	versions []V // oldest first

	cleanups []runtime.Cleanup // of the parts of its key; kept.mu's
}

// stop takes back what was to be done when parts of the key go.
func (k *keptVersions[V]) stop() {
	for _, c := range k.cleanups {
		c.Stop()
	}
}

// span are the revisions from one to another.
type span struct{ from, to uint64 }

func (s span) covers(revision uint64) bool { return s.from <= revision && revision <= s.to }

// version is a Set in some revisions.
type version struct {
	span
	set     *envoy.Set
	units   frozen.Table[*envoy.Resource] // the same resources, those of a unit together
	content envoy.Content
	notes   map[any][]note // problems, by unit
}

// note is one problem, and what it is about.
type note struct {
	Problem
	about string
}

// notes takes the problems of what is being made.
type notes struct {
	unit any
	by   map[any][]note
	seen map[any]map[note]struct{} // by unit, once it has a new one
}

// add notes something of the unit, once.
func (n *notes) add(x note) {
	seen, ok := n.seen[n.unit]
	if !ok {
		if seen = map[note]struct{}{}; n.seen == nil {
			n.seen = map[any]map[note]struct{}{}
		}
		n.seen[n.unit] = seen
		n.by[n.unit] = slices.Clip(n.by[n.unit]) // another version may have it
		for _, had := range n.by[n.unit] {
			seen[had] = struct{}{}
		}
	}
	if _, ok := seen[x]; !ok {
		seen[x] = struct{}{}
		n.by[n.unit] = append(n.by[n.unit], x)
	}
}

// Bounds of what is kept of the past.
const (
	mostVersions = 2
	keptUnused   = 64  // full Snapshots, between two looks for what nobody asks for
	mostUnits    = 256 // that are made by themselves, beside as many as there are resources; of more the Set is made whole
)

// note counts a full Snapshot, the newest.
func (k *kept[K, V]) note(revision uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.last = revision
	if k.full++; k.full%keptUnused == 0 {
		maps.DeleteFunc(k.made, func(_ K, s *keptVersions[V]) bool {
			unused := s.used+keptUnused < k.full
			if unused {
				s.stop()
			}
			return unused
		})
	}
}

// of gives what is kept for a key, which may be nothing yet. fresh: nobody asked for it before.
func (k *kept[K, V]) of(key K) (s *keptVersions[V], fresh bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s = k.made[key]
	if fresh = s == nil; fresh {
		if s = (&keptVersions[V]{}); k.made == nil {
			k.made = map[K]*keptVersions[V]{}
		}
		k.made[key] = s
	}
	s.used = k.full
	return s, fresh
}

// forget drops what is kept for a key.
func (k *kept[K, V]) forget(key K) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if s := k.made[key]; s != nil {
		s.stop()
		delete(k.made, key)
	}
}

// forgotten has what is kept for a key dropped once nobody has a part of the key any more, if it has that part.
func forgotten[K comparable, V interface{ covers(revision uint64) bool }, T any](k *kept[K, V], key K, part *T) {
	if part == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if s := k.made[key]; s != nil {
		s.cleanups = append(s.cleanups, runtime.AddCleanup(part, k.forget, key))
	}
}

// at gives the version of a revision, if there is one.
func (k *keptVersions[V]) at(revision uint64) (v V, ok bool) {
	for _, v := range slices.Backward(k.versions) {
		if v.covers(revision) {
			return v, true
		}
	}
	return v, false
}

// add keeps the newest version.
func (k *keptVersions[V]) add(v V) {
	if k.versions = append(k.versions, v); len(k.versions) > mostVersions {
		k.versions = slices.Delete(k.versions, 0, 1)
	}
}

// keep gives a Set in a view. Whoever needs it first makes it, and the others wait. Where that panics it panics for everybody: a Set that is not there must not look empty.
func keep[U comparable](v *view, key setKey, r func() recipe[U]) *version {
	k, fresh := v.t.kept.of(key)
	if fresh {
		forgotten(&v.t.kept, key, key.scope.Value())
		forgotten(&v.t.kept, key, key.listeners.Value())
		forgotten(&v.t.kept, key, key.inbound.Value())
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if s, ok := k.at(v.Revision); ok {
		return s
	}
	return another(v, k, r())
}

// another makes the version of a view that has none.
func another[U comparable](v *view, k *keptVersions[*version], r recipe[U]) *version {
	var last *version
	if n := len(k.versions); n > 0 {
		last = k.versions[n-1]
	}
	if last != nil && v.Revision < last.from {
		return r.next(v, k.versions[0]) // of a stream that has fallen far behind
	}
	next := r.next(v, last)
	if next == last { // nothing touched it in between either
		last.to = v.Revision
		return last
	}
	k.add(next)
	return next
}

// next makes the version of a view from another one, mostly that before, nil if there is none.
func (r recipe[U]) next(v *view, last *version) *version {
	if last == nil {
		return r.anew(v)
	}
	c, ok := v.t.history.since(min(last.to, v.Revision), max(last.from, v.Revision))
	if ok && !c.All {
		units := r.touched(c)
		if len(units) == 0 {
			return last
		}
		if r.units != nil && len(units) <= mostUnits+last.set.Len() {
			if r.spread != nil {
				units = r.spread(v, units)
			}
			return r.again(v, last, units)
		}
	}
	next := r.anew(v)
	if next.set.Equal(last.set) {
		next.set = last.set
	}
	return next
}

func (r recipe[U]) anew(v *view) *version {
	taker := *v
	taker.notes = &notes{by: map[any][]note{}}
	s := &version{span: span{v.Revision, v.Revision}, set: envoy.NewSet(r.whole(&taker)), notes: taker.notes.by}
	if s.units = s.set.Table(); r.byTail {
		s.units = frozen.TableOf(byTail, slices.SortedFunc(s.set.All, byTail))
	}
	if r.content {
		for h := range s.set.All {
			s.content.Add(h)
		}
	}
	return s
}

// again makes some units again.
func (r recipe[U]) again(v *view, last *version, units []U) *version {
	taker := *v
	taker.notes = &notes{by: make(map[any][]note, len(last.notes))}
	for u, list := range last.notes {
		taker.notes.by[u] = list
	}
	for _, u := range units {
		delete(taker.notes.by, u)
		delete(taker.notes.seen, u)
	}
	var gone, made []*envoy.Resource
	unit := r.units(&taker, units)
	for _, u := range units {
		taker.notes.unit = u
		was, is := slices.Collect(last.units.Where(r.of(u))), unit(u)
		gone, made = append(gone, without(was, is)...), append(made, without(is, was)...)
	}
	s := &version{span: span{v.Revision, v.Revision}, set: last.set, units: last.units, content: last.content, notes: taker.notes.by}
	if len(gone)+len(made) > 0 {
		s.set = last.set.With(gone, made)
		if s.units = s.set.Table(); r.byTail {
			s.units = exchange(last.units, gone, made)
		}
		if r.content {
			for _, h := range gone {
				s.content.Remove(h)
			}
			for _, h := range made {
				s.content.Add(h)
			}
		}
	}
	return s
}

// without gives the resources that are not among others.
func without(list, others []*envoy.Resource) []*envoy.Resource {
	if len(list) == 0 || slices.Equal(list, others) {
		return nil
	}
	among := make(map[*envoy.Resource]struct{}, len(others))
	for _, r := range others {
		among[r] = struct{}{}
	}
	return slices.DeleteFunc(slices.Clone(list), func(r *envoy.Resource) bool { _, ok := among[r]; return ok })
}

// eachUnit makes units by themselves.
func eachUnit[U comparable](unit func(v *view, u U) []*envoy.Resource) func(v *view, all []U) func(u U) []*envoy.Resource {
	return func(v *view, _ []U) func(u U) []*envoy.Resource {
		return func(u U) []*envoy.Resource { return unit(v, u) }
	}
}

// exchange gives a list with some resources in the place of others.
func exchange(list frozen.Table[*envoy.Resource], gone, made []*envoy.Resource) frozen.Table[*envoy.Resource] {
	e := &frozen.Edit{}
	for _, r := range gone {
		list.Delete(e, r)
	}
	for _, r := range made {
		list.Put(e, r)
	}
	e.Done()
	return list
}

func compareNames(a, b *envoy.Resource) int { return strings.Compare(a.Name, b.Name) }

// tail is the host in a cluster's name; other names are their own tails.
func tail(name string) string {
	if strings.HasPrefix(name, string(names.Outbound)+"_.") {
		part := strings.SplitN(name, "_.", 4) // the host may have such in it
		return part[len(part)-1]
	}
	return name[strings.LastIndexByte(name, '|')+1:]
}

func compareTails(a, b string) int {
	if c := strings.Compare(tail(a), tail(b)); c != 0 {
		return c
	}
	return strings.Compare(a, b)
}

func byTail(a, b *envoy.Resource) int { return compareTails(a.Name, b.Name) }
