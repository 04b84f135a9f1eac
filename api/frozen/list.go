package frozen

import "unique"

// List is an immutable, interned list. The zero List is empty.
type List[T comparable] struct {
	first unique.Handle[cell[T]]
	some  bool
}

type cell[T comparable] struct {
	value T
	rest  List[T]
}

// ListOf makes a list.
func ListOf[T comparable](values ...T) List[T] {
	var l List[T]
	for i := len(values) - 1; i >= 0; i-- {
		l = List[T]{unique.Make(cell[T]{values[i], l}), true}
	}
	return l
}

// Empty tells a list without values.
func (l List[T]) Empty() bool { return !l.some }

// All calls yield for each value in order.
func (l List[T]) All(yield func(T) bool) {
	for l.some {
		c := l.first.Value()
		if !yield(c.value) {
			return
		}
		l = c.rest
	}
}
