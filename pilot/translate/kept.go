package translate

import (
	"slices"
	"strings"
	"sync"
	"unique"

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
	touched func(c *scope.Changes) []U // the units that changes may reach
	spread  func(v *view, u []U) []U   // with those whose resources depend on theirs; nil: none do
	unit    func(v *view, u U) []*envoy.Resource
	of      func(u U) unitOf // finds a unit's resources in a Set
	byTail  bool             // they are together in the order of tails, not in that of names
	content bool             // the Content of the Set is wanted: it is of virtual hosts
}

// unitOf tells whether a resource is of a unit: in the order of tails, then names, 0 is.
type unitOf func(r *envoy.Resource) int

// coarse is the recipe of a Set that is made whole whenever stale says so.
func coarse(whole func(v *view) []*envoy.Resource, stale func(c *scope.Changes) bool) recipe[struct{}] {
	return recipe[struct{}]{whole: whole, touched: func(c *scope.Changes) []struct{} {
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
	scope     unique.Handle[cohort.Scope]
	listeners unique.Handle[cohort.Listeners]
	inbound   unique.Handle[cohort.Inbound]
}

// kept holds each Set that cohorts were given, with the revisions in which it is what it is: the next is made from it by its recipe's units that changed, and is the same
// pointer when nothing came out different. Sets that nobody asked for in a while are forgotten. Safe for concurrent use.
type kept struct {
	mu   sync.Mutex
	sets map[setKey]*keptSet
	full uint64 // changes that were not empty
	last uint64 // the revision of the last of them
}

// keptSet is one Set through time.
type keptSet struct {
	used uint64 // when kept.full was so much

	mu       sync.Mutex
	versions []*version // oldest first
}

// version is a Set in the revisions from one to another.
type version struct {
	from, to uint64
	set      *envoy.Set
	units    frozen.Table[*envoy.Resource] // the same resources, those of a unit together
	content  envoy.Content
	notes    map[any][]note // problems, by unit
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
}

// Bounds of what is kept of the past.
const (
	keptVersions = 2
	keptUnused   = 64 // changes, between two looks for Sets that nobody asks for
)

// note counts what the newest Snapshot changed.
func (k *kept) note(revision uint64, c *scope.Changes) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if c.Empty() {
		return
	}
	k.last = revision
	if k.full++; k.full%keptUnused == 0 {
		for key, s := range k.sets {
			if s.used+keptUnused < k.full {
				delete(k.sets, key)
			}
		}
	}
}

func (k *kept) of(key setKey) *keptSet {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.sets[key]
	if s == nil {
		if s = (&keptSet{}); k.sets == nil {
			k.sets = map[setKey]*keptSet{}
		}
		k.sets[key] = s
	}
	s.used = k.full
	return s
}

// keep gives a Set in a view. Whoever needs it first makes it, and the others wait. Where that panics it panics for everybody: a Set that is not there must not look empty.
func keep[U comparable](v *view, key setKey, r func() recipe[U]) *envoy.Set {
	k := v.t.kept.of(key)
	k.mu.Lock()
	defer k.mu.Unlock()
	if s := k.at(v.Revision); s != nil {
		return s.set
	}
	return another(v, k, r()).set
}

func keepVersion[U comparable](v *view, key setKey, r recipe[U]) *version {
	k := v.t.kept.of(key)
	k.mu.Lock()
	defer k.mu.Unlock()
	if s := k.at(v.Revision); s != nil {
		return s
	}
	return another(v, k, r)
}

// at gives the version of a revision, or nil.
func (k *keptSet) at(revision uint64) *version {
	for _, s := range slices.Backward(k.versions) {
		if s.from <= revision && revision <= s.to {
			return s
		}
	}
	return nil
}

// another makes the version of a view that has none.
func another[U comparable](v *view, k *keptSet, r recipe[U]) *version {
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
	if k.versions = append(k.versions, next); len(k.versions) > keptVersions {
		k.versions = slices.Delete(k.versions, 0, 1)
	}
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
		if r.unit != nil {
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
	s := &version{from: v.Revision, to: v.Revision, set: envoy.NewSet(r.whole(&taker)), notes: taker.notes.by}
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
	var gone, made []*envoy.Resource
	for _, u := range units {
		delete(taker.notes.by, u)
		taker.notes.unit = u
		was, is := slices.Collect(last.units.Where(r.of(u))), r.unit(&taker, u)
		gone, made = append(gone, without(was, is)...), append(made, without(is, was)...)
	}
	s := &version{from: v.Revision, to: v.Revision, set: last.set, units: last.units, content: last.content, notes: taker.notes.by}
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
	if slices.Equal(list, others) {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(list), func(r *envoy.Resource) bool { return slices.Contains(others, r) })
}

// exchange gives a list with some resources in the place of others.
func exchange(list frozen.Table[*envoy.Resource], gone, made []*envoy.Resource) frozen.Table[*envoy.Resource] {
	e := list.Edit()
	for _, r := range gone {
		e.Delete(r)
	}
	for _, r := range made {
		e.Put(r)
	}
	return e.Table()
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
