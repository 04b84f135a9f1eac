package diff

import (
	"cmp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"weak"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// Diff is what brings a client from one Union to another.
type Diff struct {
	Changed  []*envoy.Resource // added ones as well, by name
	Removed  []*envoy.Resource // as the client has them, by name
	Versions *Versions         // of changed, if the list is cached; else nil
}

// Cache compares Unions. The difference of two Sets is cached by their pointers, for all streams of a cohort need
// the same. An entry is dropped when a new snapshot comes, or when its target Set is garbage. Safe for concurrent use.
type Cache struct {
	mu   sync.Mutex
	made map[pair]cachedDifference
}

// cachedDifference is a difference that is cached until a Set is garbage.
type cachedDifference struct {
	Diff
	drop runtime.Cleanup
}

// pair are two Sets, held by those that have them.
type pair struct{ from, to weak.Pointer[envoy.Set] }

// maxCached bounds the entries between two snapshots: slow streams may each need a different one.
const maxCached = 1024

// Between returns the difference of two Unions. With keep, the differences of their Sets are cached. The lists may be
// shared: nobody changes them.
func (d *Cache) Between(from, to envoy.Union, keep bool) Diff {
	if from == to {
		return Diff{}
	}
	out := d.sets(from.Shared, to.Shared, keep)
	if from.Own == nil && to.Own == nil && from.Omit == to.Omit && to.Omit == nil {
		return out
	}
	in := d.sets(from.Own, to.Own, keep)
	var diff Diff
	var candidates []string // names that both halves, or one and an omission, have a say in
	other := func(name string) bool { return from.Own.Get(name) != nil || to.Own.Get(name) != nil }
	for _, r := range out.Changed {
		if other(r.Name) {
			candidates = append(candidates, r.Name)
		} else if !to.Omits(r.Name) {
			diff.Changed = append(diff.Changed, r)
		}
	}
	for _, r := range out.Removed {
		if other(r.Name) {
			candidates = append(candidates, r.Name)
		} else if !from.Omits(r.Name) {
			diff.Removed = append(diff.Removed, r)
		}
	}
	for _, list := range [][]*envoy.Resource{in.Changed, in.Removed} {
		for _, r := range list {
			candidates = append(candidates, r.Name)
		}
	}
	if from.Omit != to.Omit {
		candidates = slices.AppendSeq(slices.AppendSeq(candidates, from.Omit.Each()), to.Omit.Each())
	}
	if len(candidates) == 0 {
		return diff
	}
	slices.Sort(candidates)
	for _, name := range slices.Compact(candidates) {
		had, has := from.Get(name), to.Get(name)
		switch {
		case has != nil && (had == nil || had.Version != has.Version):
			diff.Changed = append(diff.Changed, has)
		case has == nil && had != nil:
			diff.Removed = append(diff.Removed, had)
		}
	}
	slices.SortFunc(diff.Changed, ByName)
	slices.SortFunc(diff.Removed, ByName)
	diff.Changed, diff.Removed = slices.Clip(slices.Compact(diff.Changed)), slices.Clip(slices.Compact(diff.Removed))
	return diff
}

// sets returns the difference of two Sets.
func (d *Cache) sets(a, b *envoy.Set, keep bool) Diff {
	if a == b {
		return Diff{}
	}
	if !keep {
		return compareSets(a, b)
	}
	k := pair{weak.Make(a), weak.Make(b)}
	d.mu.Lock()
	kept, ok := d.made[k]
	d.mu.Unlock()
	if ok {
		return kept.Diff
	}
	kept.Diff = compareSets(a, b)
	if len(kept.Changed) > 1 {
		kept.Versions = &Versions{list: kept.Changed}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.made) >= maxCached {
		d.clear()
	}
	if other, ok := d.made[k]; ok { // somebody else was quicker
		return other.Diff
	}
	if d.made == nil {
		d.made = map[pair]cachedDifference{}
	}
	kept.drop = runtime.AddCleanup(cmp.Or(b, a), drop, dropping{weak.Make(d), k})
	d.made[k] = kept
	return kept.Diff
}

// dropping is a pair to be dropped. It refers to the cache weakly: otherwise a Set would keep alive the cache of every
// client that was once compared with it.
type dropping struct {
	of weak.Pointer[Cache]
	pair
}

func drop(x dropping) {
	if d := x.of.Value(); d != nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.made, x.pair)
	}
}

// Forget drops all, because a new snapshot has come.
func (d *Cache) Forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.clear()
}

// Len returns how many differences are cached.
func (d *Cache) Len() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.made)
}

// clear drops all. mu is held.
func (d *Cache) clear() {
	for _, m := range d.made {
		m.drop.Stop()
	}
	d.made = nil
}

func compareSets(from, to *envoy.Set) Diff {
	var d Diff
	envoy.Differ(from, to, func(had, has *envoy.Resource) {
		switch {
		case has == nil:
			d.Removed = append(d.Removed, had)
		case had == nil || had.Version != has.Version:
			d.Changed = append(d.Changed, has)
		}
	})
	d.Changed, d.Removed = slices.Clip(d.Changed), slices.Clip(d.Removed)
	return d
}

// ByName orders resources by name.
func ByName(a, b *envoy.Resource) int { return strings.Compare(a.Name, b.Name) }
