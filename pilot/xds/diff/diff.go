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

// Diff is the difference between two Unions.
type Diff struct {
	Changed  []*envoy.Resource // added and changed resources, by name
	Removed  []*envoy.Resource // removed resources as in the old Union, by name
	Versions *Versions         // versions of Changed if the list is cached; else nil
}

// Cache compares Unions. It caches the difference of two Sets by their pointers, because all streams of a cohort need
// the same one. A new snapshot or the garbage collection of the target Set drops an entry. It is safe for concurrent
// use.
type Cache struct {
	mu   sync.Mutex
	made map[pair]cachedDifference
}

// cachedDifference is an entry of the cache. Its cleanup drops it.
type cachedDifference struct {
	Diff
	drop runtime.Cleanup
}

// pair is the key of two Sets. It does not keep them alive.
type pair struct{ from, to weak.Pointer[envoy.Set] }

// maxCached bounds the entries between two snapshots, because slow streams may each need a different one.
const maxCached = 1024

// Between returns the difference of two Unions. If keep is true, it caches the differences of their Sets. The lists may
// be shared and must not be modified.
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
	var candidates []string // names for which both halves, or a half and an omission, matter
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
	if other, ok := d.made[k]; ok { // another goroutine was faster
		return other.Diff
	}
	if d.made == nil {
		d.made = map[pair]cachedDifference{}
	}
	kept.drop = runtime.AddCleanup(cmp.Or(b, a), drop, dropping{weak.Make(d), k})
	d.made[k] = kept
	return kept.Diff
}

// dropping is a pair to drop. It refers to the cache weakly, so that a Set does not keep the cache of each client alive
// that was compared with it.
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

// Forget drops all entries, because there is a new snapshot.
func (d *Cache) Forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.clear()
}

// Len returns the number of cached differences.
func (d *Cache) Len() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.made)
}

// clear drops all entries. The caller holds mu.
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
