package frozen

// trace has the items to trace, and the function to call when a look-up seeks one of them.
type trace[T any] struct {
	items []T
	found func(T)
}

// Traced returns the table with found called for each of items that a look-up seeks, whether or not the table has it.
// Tests use it to find out whether a result depends on the items that differ between two tables.
func (t Table[T]) Traced(items []T, found func(T)) Table[T] {
	t.trace = &trace[T]{items, found}
	return t
}

// lookUp calls found for the traced items for which at is 0 and match reports true. match may be nil.
func (t *trace[T]) lookUp(at func(T) int, match func(T) bool) {
	if t == nil {
		return
	}
	for _, x := range t.items {
		if at(x) == 0 && (match == nil || match(x)) {
			t.found(x)
		}
	}
}
