package xds

import (
	"cmp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"weak"

	"github.com/cespare/xxhash/v2"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// difference is what brings a client from one Union to another.
type difference struct {
	changed      []*envoy.Resource // added ones as well, by name
	removed      []*envoy.Resource // as the client has them, by name
	versionCache *versionCache     // of changed, if the list is cached; else nil
}

// differences compares Unions. The difference of two Sets is cached by their pointers, for all streams of a cohort need
// the same. An entry is dropped when a new snapshot comes, or when its target Set is garbage. Safe for concurrent use.
type differences struct {
	mu   sync.Mutex
	made map[pair]cachedDifference
}

// cachedDifference is a difference that is cached until a Set is garbage.
type cachedDifference struct {
	difference
	drop runtime.Cleanup
}

// pair are two Sets, held by those that have them.
type pair struct{ from, to weak.Pointer[envoy.Set] }

// maxCached bounds the entries between two snapshots: slow streams may each need a different one.
const maxCached = 1024

// between returns the difference of two Unions. With keep, the differences of their Sets are cached. The lists may be
// shared: nobody changes them.
func (d *differences) between(from, to envoy.Union, keep bool) difference {
	if from == to {
		return difference{}
	}
	out := d.sets(from.Outbound, to.Outbound, keep)
	if from.Inbound == nil && to.Inbound == nil && from.Omit == to.Omit && to.Omit == nil {
		return out
	}
	in := d.sets(from.Inbound, to.Inbound, keep)
	var diff difference
	var candidates []string // names that both halves, or one and an omission, have a say in
	other := func(name string) bool { return from.Inbound.Get(name) != nil || to.Inbound.Get(name) != nil }
	for _, r := range out.changed {
		if other(r.Name) {
			candidates = append(candidates, r.Name)
		} else if !to.Omits(r.Name) {
			diff.changed = append(diff.changed, r)
		}
	}
	for _, r := range out.removed {
		if other(r.Name) {
			candidates = append(candidates, r.Name)
		} else if !from.Omits(r.Name) {
			diff.removed = append(diff.removed, r)
		}
	}
	for _, list := range [][]*envoy.Resource{in.changed, in.removed} {
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
			diff.changed = append(diff.changed, has)
		case has == nil && had != nil:
			diff.removed = append(diff.removed, had)
		}
	}
	slices.SortFunc(diff.changed, before)
	slices.SortFunc(diff.removed, before)
	diff.changed, diff.removed = slices.Clip(slices.Compact(diff.changed)), slices.Clip(slices.Compact(diff.removed))
	return diff
}

// sets returns the difference of two Sets.
func (d *differences) sets(a, b *envoy.Set, keep bool) difference {
	if a == b {
		return difference{}
	}
	if !keep {
		return compareSets(a, b)
	}
	k := pair{weak.Make(a), weak.Make(b)}
	d.mu.Lock()
	kept, ok := d.made[k]
	d.mu.Unlock()
	if ok {
		return kept.difference
	}
	kept.difference = compareSets(a, b)
	if len(kept.changed) > 1 {
		kept.versionCache = &versionCache{list: kept.changed}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.made) >= maxCached {
		d.clear()
	}
	if other, ok := d.made[k]; ok { // somebody else was quicker
		return other.difference
	}
	if d.made == nil {
		d.made = map[pair]cachedDifference{}
	}
	kept.drop = runtime.AddCleanup(cmp.Or(b, a), drop, dropping{weak.Make(d), k})
	d.made[k] = kept
	return kept.difference
}

// dropping is a pair to be dropped. It refers to the cache weakly: otherwise a Set would keep alive the cache of every
// client that was once compared with it.
type dropping struct {
	of weak.Pointer[differences]
	pair
}

func drop(x dropping) {
	if d := x.of.Value(); d != nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.made, x.pair)
	}
}

func (d *differences) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.clear()
}

// clear drops all. mu is held.
func (d *differences) clear() {
	for _, m := range d.made {
		m.drop.Stop()
	}
	d.made = nil
}

func compareSets(from, to *envoy.Set) difference {
	var d difference
	envoy.Differ(from, to, func(had, has *envoy.Resource) {
		switch {
		case has == nil:
			d.removed = append(d.removed, had)
		case had == nil || had.Version != has.Version:
			d.changed = append(d.changed, has)
		}
	})
	d.changed, d.removed = slices.Clip(d.changed), slices.Clip(d.removed)
	return d
}

// versionCache holds the versions that responses state for one list of resources, for all streams that are sent this
// list. Safe for concurrent use.
type versionCache struct {
	list []*envoy.Resource

	mu       sync.Mutex
	version  string
	clusters weak.Pointer[envoy.Set]
	versions []string // with those clusters, see withClusters
}

// of reports whether the cache is of this very list.
func (t *versionCache) of(list []*envoy.Resource) bool {
	return t != nil && len(list) == len(t.list) && &list[0] == &t.list[0]
}

// versionOf returns the package's versionOf of list, cached if the cache is of this list.
func (t *versionCache) versionOf(list []*envoy.Resource) string {
	if !t.of(list) {
		return versionOf(list)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.version == "" {
		t.version = versionOf(list)
	}
	return t.version
}

// withClusters returns the package's withClusters, cached if the cache is of this list. Nobody changes the result.
func (t *versionCache) withClusters(list []*envoy.Resource, clusters envoy.Union) []string {
	if !t.of(list) || !onlyOutbound(clusters, func(name string) bool { return holds(list, name) }) {
		return withClusters(list, clusters)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if k := weak.Make(clusters.Outbound); t.versions == nil || t.clusters != k {
		t.clusters, t.versions = k, withClusters(list, clusters)
	}
	return t.versions
}

// holds reports whether a sorted list has a resource of that name.
func holds(list []*envoy.Resource, name string) bool {
	_, ok := slices.BinarySearchFunc(list, name, func(r *envoy.Resource, n string) int { return strings.Compare(r.Name, n) })
	return ok
}

// versionOf is the hash of the names and versions of resources, whatever their order.
func versionOf(resources []*envoy.Resource) string {
	var sum uint64
	for _, r := range resources {
		sum += xxhash.Sum64String(r.Name)*31 ^ xxhash.Sum64String(r.Version)
	}
	return strconv.FormatUint(sum, 16)
}
