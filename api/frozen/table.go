package frozen

import (
	"iter"
	"slices"
	"sort"
	"strings"
)

// Table is an immutable sorted list from which another, that differs in a few items, is made at a cost of what differs: the two share all else. Reading is
// by order alone, so that equal content is equal however it came about. The zero Table is empty and cannot be edited.
type Table[T any] struct {
	order  func(a, b T) int
	chunks []*chunk[T] // none is empty
	n      int
	by     *Edit // made the list of chunks
}

// most is how many items a chunk has at most. An edit copies a chunk and the list of chunks, so it is small where the table is.
const most = 64

type chunk[T any] struct {
	items []T
	by    *Edit // made it
}

// NewTable makes a Table in an order, in which no two items are equal.
func NewTable[T any](order func(a, b T) int) Table[T] { return Table[T]{order: order} }

// TableOf makes a Table of items that are in its order, each once.
func TableOf[T any](order func(a, b T) int, items []T) Table[T] {
	const full = most * 3 / 4 // room for some more
	t := Table[T]{order: order, n: len(items)}
	for part := range slices.Chunk(items, full) {
		t.chunks = append(t.chunks, &chunk[T]{items: slices.Clone(part)})
	}
	return t
}

// Concat makes one Table of several whose items, one Table after the other, are in order. It shares their items.
func Concat[T any](order func(a, b T) int, tables ...Table[T]) Table[T] {
	all := Table[T]{order: order}
	for _, t := range tables {
		all.chunks, all.n = append(all.chunks, t.chunks...), all.n+t.n
	}
	return all
}

// Len is the number of items.
func (t Table[T]) Len() int { return t.n }

// All calls yield for each item in order.
func (t Table[T]) All(yield func(T) bool) {
	for _, c := range t.chunks {
		for _, x := range c.items {
			if !yield(x) {
				return
			}
		}
	}
}

// seek gives the place of the first item for which at is not negative.
func (t Table[T]) seek(at func(T) int) (c, i int) {
	c = sort.Search(len(t.chunks), func(c int) bool { items := t.chunks[c].items; return at(items[len(items)-1]) >= 0 })
	if c < len(t.chunks) {
		items := t.chunks[c].items
		i = sort.Search(len(items), func(i int) bool { return at(items[i]) >= 0 })
	}
	return c, i
}

// Where gives the items for which at is 0: at compares an item with what is sought, in the Table's order.
func (t Table[T]) Where(at func(T) int) iter.Seq[T] {
	return func(yield func(T) bool) {
		for c, i := t.seek(at); c < len(t.chunks); c, i = c+1, 0 {
			for _, x := range t.chunks[c].items[i:] {
				if at(x) != 0 || !yield(x) {
					return
				}
			}
		}
	}
}

// ComparePrefix compares a name as strings.Compare does, and finds it equal if it begins with the prefix: so Where gives all that do.
func ComparePrefix(name, prefix string) int {
	if strings.HasPrefix(name, prefix) {
		return 0
	}
	return strings.Compare(name, prefix)
}

// First gives the first item for which at is 0.
func (t Table[T]) First(at func(T) int) (x T, ok bool) {
	if c, i := t.seek(at); c < len(t.chunks) {
		if x = t.chunks[c].items[i]; at(x) == 0 {
			return x, true
		}
	}
	var none T
	return none, false
}

// Get gives the item that is equal to x in the Table's order.
func (t Table[T]) Get(x T) (T, bool) { return t.First(func(y T) int { return t.order(y, x) }) }

// Diff calls visit for what differs between two Tables of one order: with items that are equal in order but are not the same, or with one that the other Table has
// not got, and where has and had say which. What the Tables share costs nothing to speak of.
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

// cursor is a place in a list of chunks.
type cursor[T any] struct {
	chunks []*chunk[T]
	i      int
}

func (c *cursor[T]) item() T { return c.chunks[0].items[c.i] }

// next gives the item and goes on.
func (c *cursor[T]) next() T {
	x := c.item()
	if c.i++; c.i == len(c.chunks[0].items) {
		c.chunks, c.i = c.chunks[1:], 0
	}
	return x
}

// Edit makes other Tables of some, by Put and Delete. A Table that it changes is good until it is changed again; once the Edit is done, what it made is frozen.
// Not safe for concurrent use.
type Edit struct{ trim []func() }

// Done ends the edit, which is not to be used again.
func (e *Edit) Done() {
	for _, trim := range e.trim {
		trim()
	}
	e.trim = nil
}

// Put adds an item, in the place of one that is equal in order.
func (t *Table[T]) Put(e *Edit, x T) {
	c, i := t.seek(func(y T) int { return t.order(y, x) })
	if c == len(t.chunks) { // behind all others
		if c == 0 || len(t.chunks[c-1].items) >= most {
			t.split(e, c, &chunk[T]{items: []T{x}})
			t.n++
			return
		}
		c, i = c-1, len(t.chunks[c-1].items)
	}
	k := t.chunk(e, c)
	if i < len(k.items) && t.order(k.items[i], x) == 0 {
		k.items[i] = x
		return
	}
	t.n++
	k.items = slices.Insert(k.items, i, x)
	if len(k.items) > most {
		const half = most / 2
		rest := &chunk[T]{items: slices.Clone(k.items[half:])}
		k.items = slices.Clone(k.items[:half])
		t.split(e, c+1, rest)
	}
}

// Delete takes the item out that is equal to x in order.
func (t *Table[T]) Delete(e *Edit, x T) {
	c, i := t.seek(func(y T) int { return t.order(y, x) })
	if c == len(t.chunks) || t.order(t.chunks[c].items[i], x) != 0 {
		return
	}
	t.n--
	k := t.chunk(e, c)
	k.items = slices.Delete(k.items, i, i+1)
	switch {
	case len(k.items) == 0:
		t.chunks = slices.Delete(t.chunks, c, c+1)
	case c > 0 && len(k.items)+len(t.chunks[c-1].items) <= most/2: // or a table that shrinks would be all chunks and no items
		before := t.chunk(e, c-1)
		before.items = append(before.items, k.items...)
		t.chunks = slices.Delete(t.chunks, c, c+1)
	}
}

// chunk gives one that may be written.
func (t *Table[T]) chunk(e *Edit, c int) *chunk[T] {
	t.list(e)
	k := t.chunks[c]
	if k.by != e {
		k = own(e, &chunk[T]{items: slices.Clone(k.items)})
		t.chunks[c] = k
	}
	return k
}

func (t *Table[T]) split(e *Edit, c int, k *chunk[T]) {
	t.list(e)
	t.chunks = slices.Insert(t.chunks, c, own(e, k))
}

// own notes a chunk that the edit may write.
func own[T any](e *Edit, k *chunk[T]) *chunk[T] {
	k.by = e
	e.trim = append(e.trim, func() {
		if cap(k.items)-len(k.items) > most/8 { // it grew; it stays for long
			k.items = slices.Clone(k.items)
		}
	})
	return k
}

// list makes the list of chunks one that may be written.
func (t *Table[T]) list(e *Edit) {
	if t.by != e {
		t.by, t.chunks = e, slices.Clone(t.chunks)
	}
}
