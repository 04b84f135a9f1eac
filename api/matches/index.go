package matches

import (
	"slices"
	"strings"
)

// Index finds the requests that contain another, without a comparison with each.
type Index[V any] struct {
	every    []entry[V] // of every path
	exacts   map[string][]entry[V]
	prefixes map[string][]entry[V]
	patterns []entry[V]
	lengths  []int // of prefixes, sorted
	added    int
}

type entry[V any] struct {
	*Request
	value V
	order int
}

// Add adds requests.
func (x *Index[V]) Add(r *Request, value V) {
	e := entry[V]{r, value, x.added}
	x.added++
	switch key := strings.ToLower(r.path.text); r.path.form {
	case every:
		x.every = append(x.every, e)
	case pattern:
		x.patterns = append(x.patterns, e)
	case exact:
		if x.exacts == nil {
			x.exacts = map[string][]entry[V]{}
		}
		x.exacts[key] = append(x.exacts[key], e)
	case prefix:
		if x.prefixes == nil {
			x.prefixes = map[string][]entry[V]{}
		}
		if x.prefixes[key] == nil {
			if i, known := slices.BinarySearch(x.lengths, len(key)); !known {
				x.lengths = slices.Insert(x.lengths, i, len(key))
			}
		}
		x.prefixes[key] = append(x.prefixes[key], e)
	}
}

// Containing returns the value of the first requests that contain r. more is asked before each comparison, and ends the
// search if it reports false.
func (x *Index[V]) Containing(r *Request, more func() bool) (value V, found bool) {
	first := x.added
	try := func(list []entry[V]) {
		for _, e := range list {
			if e.order >= first || !more() {
				return
			}
			if e.Contains(r) {
				first, value, found = e.order, e.value, true
				return
			}
		}
	}
	try(x.every)
	text := r.path.text
	if r.path.form == pattern {
		text = r.path.head
	}
	text = strings.ToLower(text)
	if r.path.form == exact {
		try(x.exacts[text])
	}
	if r.path.form != every {
		for _, n := range x.lengths {
			if n > len(text) {
				break
			}
			try(x.prefixes[text[:n]])
		}
	}
	try(x.patterns)
	return value, found
}
