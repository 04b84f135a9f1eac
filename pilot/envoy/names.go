package envoy

import (
	"runtime"
	"slices"
	"sync"
	"weak"

	"github.com/cespare/xxhash/v2"
)

// Names is a list of names, sorted and each once, never changed once made. Those of one NameTable are the same pointer where they hold the same. The nil Names
// is empty.
type Names struct {
	list   []string
	origin weak.Pointer[Names]
}

// Origin is a list from which this one was made by taking some names away and adding others, if there is one and somebody still holds it.
func (n *Names) Origin() *Names {
	if n == nil {
		return nil
	}
	return n.origin.Value()
}

// All gives the names. The caller must not change the slice.
func (n *Names) All() []string {
	if n == nil {
		return nil
	}
	return n.list
}

// Len is how many names there are.
func (n *Names) Len() int { return len(n.All()) }

// Has tells whether a name is among them.
func (n *Names) Has(name string) bool {
	_, ok := slices.BinarySearch(n.All(), name)
	return ok
}

// NameTable makes each list once. It forgets those that nobody holds. The zero value is empty; safe for concurrent use.
type NameTable struct {
	mu   sync.Mutex
	made map[uint64][]weak.Pointer[Names]
}

// Of gives the Names of a list, which becomes the table's.
func (t *NameTable) Of(list []string) *Names { return t.From(nil, list) }

// From is Of a list that was made of an earlier one.
func (t *NameTable) From(origin *Names, list []string) *Names {
	if len(list) == 0 {
		return nil
	}
	if !slices.IsSorted(list) {
		slices.Sort(list)
	}
	list = slices.Compact(list)
	h := xxhash.New()
	for _, name := range list {
		_, _ = h.WriteString(name) // never fails
		_, _ = h.Write([]byte{0})
	}
	sum := h.Sum64()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.made[sum] {
		if n := p.Value(); n != nil && slices.Equal(n.list, list) {
			return n
		}
	}
	n := &Names{list: slices.Clone(list)}
	if origin != nil {
		n.origin = weak.Make(origin)
	}
	if t.made == nil {
		t.made = map[uint64][]weak.Pointer[Names]{}
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
