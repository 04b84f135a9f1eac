package set

import "slices"

// Set is a set. The zero value is empty, and nil is empty to all that only look.
type Set[V comparable] struct {
	few  []V            // without order, while many is nil
	many map[V]struct{} // from the time that few was full
}

// full is how many members are looked through one by one.
const full = 16

// Add adds a member, if it is none yet.
func (s *Set[V]) Add(v V) {
	switch {
	case s.many != nil:
		s.many[v] = struct{}{}
	case slices.Contains(s.few, v):
	case len(s.few) < full:
		s.few = append(s.few, v)
	default:
		s.many = make(map[V]struct{}, 2*full)
		for _, m := range s.few {
			s.many[m] = struct{}{}
		}
		s.many[v] = struct{}{}
		s.few = nil
	}
}

// Remove removes a member, if it is one.
func (s *Set[V]) Remove(v V) {
	if s == nil {
		return
	}
	delete(s.many, v)
	if i := slices.Index(s.few, v); i >= 0 {
		last := len(s.few) - 1
		s.few[i] = s.few[last]
		s.few = slices.Delete(s.few, last, last+1)
	}
}

// Len is the number of members.
func (s *Set[V]) Len() int {
	if s == nil {
		return 0
	}
	return len(s.few) + len(s.many)
}

// All calls yield for each member, in no order.
func (s *Set[V]) All(yield func(V) bool) {
	if s == nil {
		return
	}
	for _, v := range s.few {
		if !yield(v) {
			return
		}
	}
	for v := range s.many {
		if !yield(v) {
			return
		}
	}
}
