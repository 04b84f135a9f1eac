package envoy

import (
	"hash/maphash"
	"iter"
	"runtime"
	"slices"
	"strings"
	"sync"
	"weak"

	"github.com/istiod-lite/istiod-lite/api/frozen"
)

// Names is a list of names, sorted and each once, never changed once made. Those of one NameTable are the same pointer where they hold the same. A list that was
// made from another shares with it what they have in common. The nil Names is empty.
type Names struct {
	table  frozen.Table[string]
	all    func() []string
	sum    uint64 // of the hashes of the names
	origin weak.Pointer[Names]
}

func newNames(t frozen.Table[string], sum uint64) *Names {
	return &Names{table: t, sum: sum, all: sync.OnceValue(func() []string {
		return slices.AppendSeq(make([]string, 0, t.Len()), t.All)
	})}
}

// Origin is a list from which this one was made by taking some names away and adding others, if there is one and somebody still holds it.
func (n *Names) Origin() *Names {
	if n == nil {
		return nil
	}
	return n.origin.Value()
}

// All gives the names. The caller must not change the slice. Where the list was made from another it is made when it is first asked for.
func (n *Names) All() []string {
	if n == nil {
		return nil
	}
	return n.all()
}

// Each gives the names in order, without a slice of them.
func (n *Names) Each() iter.Seq[string] { return n.Table().All }

// Table gives the names in order.
func (n *Names) Table() frozen.Table[string] {
	if n == nil {
		return frozen.NewTable(strings.Compare)
	}
	return n.table
}

// Len is how many names there are.
func (n *Names) Len() int { return n.Table().Len() }

// Has tells whether a name is among them.
func (n *Names) Has(name string) bool {
	_, ok := n.Table().First(func(s string) int { return strings.Compare(s, name) })
	return ok
}

// equal tells whether two lists hold the same.
func equal(a, b frozen.Table[string]) bool {
	if a.Len() != b.Len() {
		return false
	}
	same := true
	frozen.Diff(a, b, func(_, _ string, _, _ bool) { same = false })
	return same
}

// NameTable makes each list once. It forgets those that nobody holds. The zero value is empty; safe for concurrent use.
type NameTable struct {
	mu   sync.Mutex
	seed maphash.Seed // zero until it is needed
	made map[uint64][]weak.Pointer[Names]
}

func (t *NameTable) hash() func(name string) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.made == nil {
		t.seed, t.made = maphash.MakeSeed(), map[uint64][]weak.Pointer[Names]{}
	}
	seed := t.seed
	return func(name string) uint64 { return maphash.String(seed, name) }
}

// Of gives the Names of a list, which becomes the table's.
func (t *NameTable) Of(list []string) *Names { return t.From(nil, list) }

// From is Of a list that was made of an earlier one.
func (t *NameTable) From(origin *Names, list []string) *Names {
	if !slices.IsSorted(list) {
		slices.Sort(list)
	}
	list = slices.Compact(list)
	hash, sum := t.hash(), uint64(0)
	for _, name := range list {
		sum += hash(name)
	}
	return t.one(origin, frozen.TableOf(strings.Compare, list), sum)
}

// Edited gives a list without some names, and then with others, at a cost of those.
func (t *NameTable) Edited(from, remove, add *Names) *Names {
	hash, e, list := t.hash(), &frozen.Edit{}, from.Table()
	var sum uint64
	if from != nil {
		sum = from.sum
	}
	for name := range remove.Each() {
		if _, ok := list.Get(name); ok {
			list.Delete(e, name)
			sum -= hash(name)
		}
	}
	for name := range add.Each() {
		if _, ok := list.Get(name); !ok {
			list.Put(e, name)
			sum += hash(name)
		}
	}
	e.Done()
	return t.one(from, list, sum)
}

// one gives the list that holds what a table does.
func (t *NameTable) one(origin *Names, list frozen.Table[string], sum uint64) *Names {
	if list.Len() == 0 {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.made[sum] {
		if n := p.Value(); n != nil && equal(n.table, list) {
			return n
		}
	}
	n := newNames(list, sum)
	if origin != nil {
		n.origin = weak.Make(origin)
	}
	t.made[sum] = append(t.made[sum], weak.Make(n))
	runtime.AddCleanup(n, t.forget, sum)
	return n
}

// forget drops what nobody holds of those with a hash.
func (t *NameTable) forget(sum uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	left := slices.DeleteFunc(t.made[sum], func(p weak.Pointer[Names]) bool { return p.Value() == nil })
	if len(left) == 0 {
		delete(t.made, sum)
		return
	}
	t.made[sum] = left
}

// Len is how many lists the table knows.
func (t *NameTable) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, list := range t.made {
		n += len(list)
	}
	return n
}
