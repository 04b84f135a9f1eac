package scope

import "github.com/istiod-lite/istiod-lite/pilot/snapshot"

// Watched returns a function that returns the Index, each time without what was cached of earlier look-ups. found is
// called for each row that differs from later's, when a look-up seeks it.
func (x *Index) Watched(later *Index, found snapshot.Found) func() *Index {
	t, next := x.tables, later.tables.all()
	for i, d := range t.all() {
		d.watch(next[i], found)
	}
	countsRead := func() {}
	if was, is := x.placementCounts(), later.placementCounts(); was != is {
		countsRead = func() { found("placementCounts", was) }
	}
	s := x.Snapshot.Watched(later.Snapshot, found)
	return func() *Index {
		return &Index{Snapshot: s, tables: t, Dirty: x.Dirty, clusterLocal: x.clusterLocal, countsRead: countsRead, scopes: map[scopeKey]*Scope{}}
	}
}

// watched reports whether a test watches what is read. Then no shortcut may read more than the result depends on.
func (x *Index) watched() bool { return x.countsRead != nil }
