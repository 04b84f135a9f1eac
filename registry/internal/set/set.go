package set

import "slices"

// Set is a set. The zero value is empty. A nil Set reads as empty.
type Set[V comparable] struct {
	few  []V            // unsorted; used while many is nil
	many map[V]struct{} // used once few was full
}

// maxFew is the largest number of members for which the set is a list.
const maxFew = 16

// Add adds a member if it is not in the set.
func (s *Set[V]) Add(v V) {
	switch {
	case s.many != nil:
		s.many[v] = struct{}{}
	case slices.Contains(s.few, v):
	case len(s.few) < maxFew:
		s.few = append(s.few, v)
	default:
		s.many = make(map[V]struct{}, 2*maxFew)
		for _, m := range s.few {
			s.many[m] = struct{}{}
		}
		s.many[v] = struct{}{}
		s.few = nil
	}
}

// Remove removes a member if it is in the set.
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

// Len returns the number of members.
func (s *Set[V]) Len() int {
	if s == nil {
		return 0
	}
	return len(s.few) + len(s.many)
}

// All calls yield for each member, unsorted.
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
