package scope

import "github.com/istiod-lite/istiod-lite/pilot/snapshot"

// trace says which values that have no table differ in a later Index. A test is told when they are read.
type trace struct {
	found               snapshot.Found
	placement, resolves bool
}

// Traced returns a function that returns the Index, each time without what was cached of earlier look-ups. found is
// called for each row that differs from later's, when a look-up seeks it.
func (x *Index) Traced(later *Index, found snapshot.Found) func() *Index {
	t, next := x.tables, later.tables.all()
	for i, d := range t.all() {
		d.trace(next[i], found)
	}
	differs := &trace{found: found, placement: x.placement() != later.placement(), resolves: x.ResolvesHosts() != later.ResolvesHosts()}
	s := x.Snapshot.Traced(later.Snapshot, found)
	return func() *Index {
		return &Index{
			Snapshot: s, tables: t, Dirty: x.Dirty, clusterLocal: x.clusterLocal, resolving: x.resolving,
			trace: differs, scopes: map[scopeKey]*Scope{},
		}
	}
}

// traced reports whether a test traces what is read. Then no shortcut may read more than the result depends on.
func (x *Index) traced() bool { return x.trace != nil }
