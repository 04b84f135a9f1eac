package scope

import "github.com/istiod-lite/istiod-lite/pilot/snapshot"

// Traced returns a function that returns the Index, each time without what was cached of earlier look-ups. found is
// called for each row that differs from later's, when a look-up seeks it.
func (x *Index) Traced(later *Index, found snapshot.Found) func() *Index {
	t, next := x.tables, later.tables.all()
	for i, d := range t.all() {
		d.trace(next[i], found)
	}
	placementRead := func() {}
	if was, is := x.placement(), later.placement(); was != is {
		placementRead = func() { found("placement", was) }
	}
	resolvesRead := func() {}
	if was, is := x.ResolvesHosts(), later.ResolvesHosts(); was != is {
		resolvesRead = func() { found("services whose called hosts are resolved", was) }
	}
	s := x.Snapshot.Traced(later.Snapshot, found)
	return func() *Index {
		return &Index{
			Snapshot: s, tables: t, Dirty: x.Dirty, clusterLocal: x.clusterLocal, resolving: x.resolving,
			placementRead: placementRead, resolvesRead: resolvesRead, scopes: map[scopeKey]*Scope{},
		}
	}
}

// traced reports whether a test traces what is read. Then no shortcut may read more than the result depends on.
func (x *Index) traced() bool { return x.placementRead != nil }
