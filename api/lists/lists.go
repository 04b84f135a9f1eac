package lists

import "iter"

// Map returns what f returns for each item, in order. It returns nil for an empty list.
func Map[E, T any](list []E, f func(E) T) []T {
	if len(list) == 0 {
		return nil
	}
	out := make([]T, len(list))
	for i, e := range list {
		out[i] = f(e)
	}
	return out
}

// Filter returns the items for which f returns true, in order, or nil if there are none.
func Filter[E any](list []E, f func(E) bool) (out []E) {
	for _, e := range list {
		if f(e) {
			out = append(out, e)
		}
	}
	return out
}

// Put sets the value of a key. It makes the map if the map is nil.
func Put[M ~map[K]V, K comparable, V any](m *M, key K, value V) {
	if *m == nil {
		*m = M{}
	}
	(*m)[key] = value
}

// PutIn sets the value of a key in the map that m holds for a. It makes that map if m holds none.
func PutIn[M ~map[A]N, N ~map[K]V, A, K comparable, V any](m M, a A, key K, value V) {
	in := m[a]
	if in == nil {
		in = N{}
		m[a] = in
	}
	in[key] = value
}

// Set returns the set of the items.
func Set[E comparable](list []E) map[E]bool {
	return SetOf(list, func(e E) E { return e })
}

// SetOf returns the set of what f returns for each item.
func SetOf[E any, K comparable](list []E, f func(E) K) map[K]bool {
	set := make(map[K]bool, len(list))
	for _, e := range list {
		set[f(e)] = true
	}
	return set
}

// Any reports whether f returns true for a value of a sequence. It stops at that value.
func Any[E any](values iter.Seq[E], f func(E) bool) bool {
	for e := range values {
		if f(e) {
			return true
		}
	}
	return false
}

// Unique returns the values of a list once, in the order in which they are first there.
func Unique[E comparable](list []E) []E {
	seen := map[E]bool{}
	return Filter(list, func(e E) bool {
		had := seen[e]
		seen[e] = true
		return !had
	})
}
