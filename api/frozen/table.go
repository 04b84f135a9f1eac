package frozen

import (
	"iter"
	"slices"
	"sort"
	"strings"
)

// Table is an immutable sorted list. A table that differs from it in a few items is made at a cost proportional to the
// difference: the two share everything else. A reader sees the order alone, so two tables of equal content read the
// same, whatever edits made them. The zero Table is empty and cannot be edited.
type Table[T any] struct {
	order  func(a, b T) int
	chunks []*chunk[T] // never empty
	n      int
	owner  *Edit // the Edit that may write the list of chunks

	trace *trace[T] // nil: look-ups are not traced
}

// maxChunk is the largest number of items in a chunk. An edit copies one chunk and the list of chunks, so chunks are
// small.
const maxChunk = 64

type chunk[T any] struct {
	items []T
	owner *Edit // the Edit that may write items
}

// NewTable returns an empty Table. No two of its items may be equal by order.
func NewTable[T any](order func(a, b T) int) Table[T] { return Table[T]{order: order} }

// TableOf returns a Table of items. They must be sorted by order, without duplicates.
func TableOf[T any](order func(a, b T) int, items []T) Table[T] {
	const full = maxChunk * 3 / 4 // leaves room for insertions
	t := Table[T]{order: order, n: len(items)}
	for part := range slices.Chunk(items, full) {
		t.chunks = append(t.chunks, &chunk[T]{items: slices.Clone(part)})
	}
	return t
}

// Concat returns one Table made of several. Their items, one Table after the other, must be sorted by order. The result
// shares the items.
func Concat[T any](order func(a, b T) int, tables ...Table[T]) Table[T] {
	all := Table[T]{order: order}
	for _, t := range tables {
		all.chunks, all.n = append(all.chunks, t.chunks...), all.n+t.n
	}
	return all
}

// Len returns the number of items.
func (t Table[T]) Len() int { return t.n }

// Empty reports whether a look-up can be left out because the table has no item. A traced table reports false.
func (t Table[T]) Empty() bool { return t.n == 0 && t.trace == nil }

// All calls yield for each item in order.
func (t Table[T]) All(yield func(T) bool) {
	t.trace.lookUp(func(T) int { return 0 }, nil)
	for _, c := range t.chunks {
		for _, x := range c.items {
			if !yield(x) {
				return
			}
		}
	}
}

// seek returns the position of the first item for which at is not negative.
func (t Table[T]) seek(at func(T) int) (c, i int) {
	c = sort.Search(len(t.chunks), func(c int) bool { items := t.chunks[c].items; return at(items[len(items)-1]) >= 0 })
	if c < len(t.chunks) {
		items := t.chunks[c].items
		i = sort.Search(len(items), func(i int) bool { return at(items[i]) >= 0 })
	}
	return c, i
}

// Where returns the items for which at is 0. at compares an item with a sought one, in the Table's order.
func (t Table[T]) Where(at func(T) int) iter.Seq[T] {
	return func(yield func(T) bool) {
		t.trace.lookUp(at, nil)
		for c, i := t.seek(at); c < len(t.chunks); c, i = c+1, 0 {
			for _, x := range t.chunks[c].items[i:] {
				if at(x) != 0 || !yield(x) {
					return
				}
			}
		}
	}
}

// Select returns the items for which at is 0, as Where does, and match reports true.
func (t Table[T]) Select(at func(T) int, match func(T) bool) iter.Seq[T] {
	return func(yield func(T) bool) {
		t.trace.lookUp(at, match)
		for c, i := t.seek(at); c < len(t.chunks); c, i = c+1, 0 {
			for _, x := range t.chunks[c].items[i:] {
				if at(x) != 0 || match(x) && !yield(x) {
					return
				}
			}
		}
	}
}

// Matching returns the items for which match reports true, in order. It reads all of them.
func (t Table[T]) Matching(match func(T) bool) iter.Seq[T] {
	return func(yield func(T) bool) {
		t.trace.lookUp(func(T) int { return 0 }, match)
		for _, c := range t.chunks {
			for _, x := range c.items {
				if match(x) && !yield(x) {
					return
				}
			}
		}
	}
}

// ComparePrefix is strings.Compare, but returns 0 for every name that begins with the prefix. With it Where returns the
// names that have a prefix.
func ComparePrefix(name, prefix string) int {
	if strings.HasPrefix(name, prefix) {
		return 0
	}
	return strings.Compare(name, prefix)
}

// First returns the first item for which at is 0.
func (t Table[T]) First(at func(T) int) (x T, ok bool) {
	t.trace.lookUp(at, nil)
	if c, i := t.seek(at); c < len(t.chunks) {
		if x = t.chunks[c].items[i]; at(x) == 0 {
			return x, true
		}
	}
	var none T
	return none, false
}

// Get returns the item that is equal to x by the Table's order.
func (t Table[T]) Get(x T) (T, bool) { return t.First(func(y T) int { return t.order(y, x) }) }

// Diff calls visit for each difference between two Tables of one order: for two items that are equal by order and not
// identical, and for an item that only one of the Tables has. had and has report which of the two have the item. Chunks
// that the Tables share are skipped.
func Diff[T comparable](from, to Table[T], visit func(from, to T, had, has bool)) {
	var none T
	a, b := cursor[T]{chunks: from.chunks}, cursor[T]{chunks: to.chunks}
	for {
		switch {
		case len(a.chunks) == 0 && len(b.chunks) == 0:
			return
		case len(a.chunks) > 0 && len(b.chunks) > 0 && a.i == 0 && b.i == 0 && a.chunks[0] == b.chunks[0]:
			a.chunks, b.chunks = a.chunks[1:], b.chunks[1:]
			continue
		}
		c := -1 // from's item comes first
		if len(a.chunks) == 0 {
			c = 1
		} else if len(b.chunks) > 0 {
			if a.item() == b.item() {
				a.next()
				b.next()
				continue
			}
			c = to.order(a.item(), b.item())
		}
		switch {
		case c < 0:
			visit(a.next(), none, true, false)
		case c > 0:
			visit(none, b.next(), false, true)
		default:
			visit(a.next(), b.next(), true, true)
		}
	}
}

// cursor is a position in a list of chunks.
type cursor[T any] struct {
	chunks []*chunk[T]
	i      int
}

func (c *cursor[T]) item() T { return c.chunks[0].items[c.i] }

// next returns the current item and moves on.
func (c *cursor[T]) next() T {
	x := c.item()
	if c.i++; c.i == len(c.chunks[0].items) {
		c.chunks, c.i = c.chunks[1:], 0
	}
	return x
}

// Edit changes Tables by Put and Delete. A Table that was changed may be read until the next change. After Done it is
// frozen. Not safe for concurrent use.
type Edit struct{ trim []func() }

// Done ends the edit. The Edit must not be used again.
func (e *Edit) Done() {
	for _, trim := range e.trim {
		trim()
	}
	e.trim = nil
}

// Put inserts an item, or replaces the one that is equal by order.
func (t *Table[T]) Put(e *Edit, x T) {
	c, i := t.seek(func(y T) int { return t.order(y, x) })
	if c == len(t.chunks) { // after every other item
		if c == 0 || len(t.chunks[c-1].items) >= maxChunk {
			t.insertChunk(e, c, &chunk[T]{items: []T{x}})
			t.n++
			return
		}
		c, i = c-1, len(t.chunks[c-1].items)
	}
	k := t.writableChunk(e, c)
	if i < len(k.items) && t.order(k.items[i], x) == 0 {
		k.items[i] = x
		return
	}
	t.n++
	k.items = slices.Insert(k.items, i, x)
	if len(k.items) > maxChunk {
		const half = maxChunk / 2
		rest := &chunk[T]{items: slices.Clone(k.items[half:])}
		k.items = slices.Clone(k.items[:half])
		t.insertChunk(e, c+1, rest)
	}
}

// Delete removes the item that is equal to x by order.
func (t *Table[T]) Delete(e *Edit, x T) {
	c, i := t.seek(func(y T) int { return t.order(y, x) })
	if c == len(t.chunks) || t.order(t.chunks[c].items[i], x) != 0 {
		return
	}
	t.n--
	k := t.writableChunk(e, c)
	k.items = slices.Delete(k.items, i, i+1)
	switch {
	case len(k.items) == 0:
		t.chunks = slices.Delete(t.chunks, c, c+1)
	case c > 0 && len(k.items)+len(t.chunks[c-1].items) <= maxChunk/2:
		// Without merging, a shrinking table would keep many almost empty chunks.
		before := t.writableChunk(e, c-1)
		before.items = append(before.items, k.items...)
		t.chunks = slices.Delete(t.chunks, c, c+1)
	}
}

// writableChunk returns a chunk that the edit may write: it copies a shared one.
func (t *Table[T]) writableChunk(e *Edit, c int) *chunk[T] {
	t.ownList(e)
	k := t.chunks[c]
	if k.owner != e {
		k = ownChunk(e, &chunk[T]{items: slices.Clone(k.items)})
		t.chunks[c] = k
	}
	return k
}

func (t *Table[T]) insertChunk(e *Edit, c int, k *chunk[T]) {
	t.ownList(e)
	t.chunks = slices.Insert(t.chunks, c, ownChunk(e, k))
}

// ownChunk marks a chunk as writable by the edit, and trims its memory when the edit is done.
func ownChunk[T any](e *Edit, k *chunk[T]) *chunk[T] {
	k.owner = e
	e.trim = append(e.trim, func() {
		if cap(k.items)-len(k.items) > maxChunk/8 { // it grew, and it is kept for long
			k.items = slices.Clone(k.items)
		}
	})
	return k
}

// ownList makes the list of chunks writable by the edit: it copies a shared one.
func (t *Table[T]) ownList(e *Edit) {
	if t.owner != e {
		t.owner, t.chunks = e, slices.Clone(t.chunks)
	}
}
