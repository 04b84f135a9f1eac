package frozen

import "unique"

// List is an immutable, interned list. The zero List is empty.
type List[T comparable] struct {
	first    unique.Handle[cell[T]]
	nonEmpty bool
}

type cell[T comparable] struct {
	value T
	rest  List[T]
}

// ListOf returns the list of values.
func ListOf[T comparable](values ...T) List[T] {
	var l List[T]
	for i := len(values) - 1; i >= 0; i-- {
		l = List[T]{unique.Make(cell[T]{values[i], l}), true}
	}
	return l
}

// Empty reports whether the list has no values.
func (l List[T]) Empty() bool { return !l.nonEmpty }

// Equal reports whether both lists have the same values.
func (l List[T]) Equal(o List[T]) bool { return l == o }

// All calls yield for each value in order.
func (l List[T]) All(yield func(T) bool) {
	for l.nonEmpty {
		c := l.first.Value()
		if !yield(c.value) {
			return
		}
		l = c.rest
	}
}
