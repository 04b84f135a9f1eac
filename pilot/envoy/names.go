package envoy

import (
	"hash/maphash"
	"iter"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"weak"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// Names is an immutable, sorted list of distinct names. Equal lists of one NameInterner are the same pointer. A list
// that was made from another one shares memory with it. The nil Names is empty.
type Names struct {
	table  frozen.Table[string]
	all    func() []string
	sum    uint64 // sum of the hashes of the names
	bytes  int    // length of all names together
	origin weak.Pointer[Names]
	byHost atomic.Pointer[frozen.Table[string]] // the same names ordered by host; nil until first used
}

func newNames(t frozen.Table[string], sum uint64, bytes int) *Names {
	return &Names{table: t, sum: sum, bytes: bytes, all: sync.OnceValue(func() []string {
		return slices.AppendSeq(make([]string, 0, t.Len()), t.All)
	})}
}

// Origin returns the list from which this one was made by removing and adding names, or nil if there is none or it was
// garbage-collected.
func (n *Names) Origin() *Names {
	if n == nil {
		return nil
	}
	return n.origin.Value()
}

// All returns the names. The caller must not change the slice, which is made on first use.
func (n *Names) All() []string {
	if n == nil {
		return nil
	}
	return n.all()
}

// Each returns the names in order, without making a slice.
func (n *Names) Each() iter.Seq[string] { return n.Table().All }

// Table returns the names in order.
func (n *Names) Table() frozen.Table[string] {
	if n == nil {
		return frozen.NewTable(strings.Compare)
	}
	return n.table
}

// OfHost returns the names of the clusters of a host. The first call orders the list by host. If the list's origin is
// ordered already, that costs no more than the differences between the two.
func (n *Names) OfHost(host string) iter.Seq[string] {
	t := n.byHost.Load()
	if t == nil {
		t = n.orderByHost()
		n.byHost.Store(t)
	}
	return t.Where(func(name string) int { return strings.Compare(names.ClusterHost(name), host) })
}

func (n *Names) orderByHost() *frozen.Table[string] {
	if origin := n.Origin(); origin != nil {
		if of := origin.byHost.Load(); of != nil {
			e, t := &frozen.Edit{}, *of
			frozen.Diff(origin.table, n.table, func(was, is string, had, has bool) {
				if has {
					t.Put(e, is)
				} else {
					t.Delete(e, was)
				}
			})
			e.Done()
			return &t
		}
	}
	t := frozen.TableOf(names.CompareByHost, slices.SortedFunc(n.Each(), names.CompareByHost))
	return &t
}

// Len returns the number of names.
func (n *Names) Len() int { return n.Table().Len() }

// Bytes returns the length of all names together.
func (n *Names) Bytes() int {
	if n == nil {
		return 0
	}
	return n.bytes
}

// Has reports whether a name is in the list.
func (n *Names) Has(name string) bool {
	_, ok := n.Table().First(func(s string) int { return strings.Compare(s, name) })
	return ok
}

// equal reports whether two lists hold the same names.
func equal(a, b frozen.Table[string]) bool {
	if a.Len() != b.Len() {
		return false
	}
	same := true
	frozen.Diff(a, b, func(_, _ string, _, _ bool) { same = false })
	return same
}

// NameInterner interns lists of names: equal lists are one pointer. It drops lists that are no longer referenced. The
// zero value is empty and safe for concurrent use.
type NameInterner struct {
	mu       sync.Mutex
	seed     maphash.Seed // set on first use
	interned map[uint64][]weak.Pointer[Names]
}

func (t *NameInterner) hash() func(name string) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.interned == nil {
		t.seed, t.interned = maphash.MakeSeed(), map[uint64][]weak.Pointer[Names]{}
	}
	seed := t.seed
	return func(name string) uint64 { return maphash.String(seed, name) }
}

// Intern returns the Names of a list. The list then belongs to the interner.
func (t *NameInterner) Intern(list []string) *Names { return t.InternFrom(nil, list) }

// InternFrom is Intern for a list that was made from an earlier one.
func (t *NameInterner) InternFrom(origin *Names, list []string) *Names {
	if !slices.IsSorted(list) {
		slices.Sort(list)
	}
	list = slices.Compact(list)
	hash, sum, bytes := t.hash(), uint64(0), 0
	for _, name := range list {
		sum += hash(name)
		bytes += len(name)
	}
	return t.intern(origin, frozen.TableOf(strings.Compare, list), sum, bytes)
}

// Edited returns a list without the names in remove and with the names in add. Its cost is proportional to these.
func (t *NameInterner) Edited(from, remove, add *Names) *Names {
	hash, e, list := t.hash(), &frozen.Edit{}, from.Table()
	var sum uint64
	bytes := from.Bytes()
	if from != nil {
		sum = from.sum
	}
	for name := range remove.Each() {
		if _, ok := list.Get(name); ok {
			list.Delete(e, name)
			sum -= hash(name)
			bytes -= len(name)
		}
	}
	for name := range add.Each() {
		if _, ok := list.Get(name); !ok {
			list.Put(e, name)
			sum += hash(name)
			bytes += len(name)
		}
	}
	e.Done()
	return t.intern(from, list, sum, bytes)
}

// intern returns the interned list that holds the same names as a table.
func (t *NameInterner) intern(origin *Names, list frozen.Table[string], sum uint64, bytes int) *Names {
	if list.Len() == 0 {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.interned[sum] {
		if n := p.Value(); n != nil && equal(n.table, list) {
			return n
		}
	}
	n := newNames(list, sum, bytes)
	if origin != nil {
		n.origin = weak.Make(origin)
	}
	t.interned[sum] = append(t.interned[sum], weak.Make(n))
	runtime.AddCleanup(n, t.evict, sum)
	return n
}

// evict drops the unreferenced lists with a hash.
func (t *NameInterner) evict(sum uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	rest := slices.DeleteFunc(t.interned[sum], func(p weak.Pointer[Names]) bool { return p.Value() == nil })
	if len(rest) == 0 {
		delete(t.interned, sum)
		return
	}
	t.interned[sum] = rest
}

// Len returns the number of interned lists.
func (t *NameInterner) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, list := range t.interned {
		n += len(list)
	}
	return n
}
