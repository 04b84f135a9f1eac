package scope

import (
	"iter"
	"slices"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
)

// tables hold services and routing objects in the orders in which they are looked up. An Index shares unchanged parts
// with the previous one. Each part has a file of its own with its tables, look-ups, and the rules for invalidation when
// a row changes.
type tables struct {
	serviceTables
	destinationRuleTables
	virtualServiceTables
}

func newTables() tables {
	var t tables
	for _, d := range t.all() {
		d.create()
	}
	return t
}

// all returns the tables, always in the same order.
func (t *tables) all() []declared {
	return slices.Concat(t.serviceTables.all(), t.destinationRuleTables.all(), t.virtualServiceTables.all())
}

// declared is a table with its name and order.
type declared interface {
	create()
	trace(later declared, found snapshot.Found)
}

type declaration[T comparable] struct {
	name  string
	table *frozen.Table[T]
	order func(a, b T) int
}

func declare[T comparable](name string, table *frozen.Table[T], order func(a, b T) int) declared {
	return declaration[T]{name, table, order}
}

func (d declaration[T]) create() { *d.table = frozen.NewTable(d.order) }

func (d declaration[T]) trace(later declared, found snapshot.Found) {
	*d.table = snapshot.Trace(d.name, *d.table, *later.(declaration[T]).table, found, nil)
}

// changedRows calls yield for each row that differs between two versions of a table, with the old row and the new one.
func changedRows[T comparable](was, is frozen.Table[T]) iter.Seq[T] {
	return func(yield func(T) bool) {
		more := true
		frozen.Diff(was, is, func(a, b T, had, has bool) {
			more = more && (!had || yield(a)) && (!has || yield(b))
		})
	}
}

// putOrDelete puts an item into a table, or deletes it.
func putOrDelete[T any](t *frozen.Table[T], e *frozen.Edit, add bool, x T) {
	if add {
		t.Put(e, x)
	} else {
		t.Delete(e, x)
	}
}

// none reports whether a table has no row for which at is 0, so that a slower path can be skipped. In a traced Index it
// returns false without a look-up: the slower path reads only what the result depends on.
func none[T any](x *Index, t frozen.Table[T], at func(T) int) bool {
	if x.traced() {
		return false
	}
	_, ok := t.First(at)
	return !ok
}
