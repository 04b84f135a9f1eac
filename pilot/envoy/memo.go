package envoy

import (
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"weak"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// Memo makes each resource once: builders get one comparable value that holds everything the resource depends on, and equal values give the same
// *Resource. Whoever uses a resource owns it; the memo holds it weakly, so it forgets what nobody uses, but for the newest of those that
// are idle, kept for configuration that flips back and forth. Safe for concurrent use.
type Memo struct {
	most         int // bytes that are kept of idle ones; 0: the memo is off
	hits, misses atomic.Uint64

	mu    sync.Mutex
	idle  *simplelru.LRU[*Resource, struct{}]
	bytes int
}

// NewMemo makes a memo that keeps up to idle bytes of unused resources; with idle 0 it is off and every resource is built anew.
func NewMemo(idle int) *Memo {
	m := &Memo{most: idle}
	m.idle, _ = simplelru.NewLRU(math.MaxInt, func(r *Resource, _ struct{}) { m.bytes -= r.cost() }) // fails only for sizes below 1
	return m
}

// keep holds the newest resources for a while, whether or not anybody else does.
func (m *Memo) keep(r *Resource) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.idle.Add(r, struct{}{})
	for m.bytes += r.cost(); m.bytes > m.most; {
		m.idle.RemoveOldest()
	}
}

// Stats gives the hits and misses since the start.
func (m *Memo) Stats() (hits, misses uint64) { return m.hits.Load(), m.misses.Load() }

// Table is the part of a Memo that one builder fills. K is everything that the builder reads: never a Snapshot.
type Table[K comparable] struct {
	memo  *Memo
	build func(K) *Resource

	mu   sync.Mutex
	made map[K]weak.Pointer[Resource]
}

// NewTable makes the table of one builder. build must be a pure function of its argument.
func NewTable[K comparable](m *Memo, build func(K) *Resource) *Table[K] {
	return &Table[K]{memo: m, build: build, made: map[K]weak.Pointer[Resource]{}}
}

// Get gives the resource for k, building it if nobody holds it.
func (t *Table[K]) Get(k K) *Resource {
	if t.memo.most == 0 {
		t.memo.misses.Add(1)
		return t.build(k)
	}
	if r := t.find(k); r != nil {
		t.memo.hits.Add(1)
		return r
	}
	t.memo.misses.Add(1)
	built := t.build(k)
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := t.made[k].Value(); r != nil { // somebody else was quicker: one pointer for all
		return r
	}
	p := weak.Make(built)
	t.made[k] = p
	runtime.AddCleanup(built, forget[K], entry[K]{weak.Make(t), k, p})
	t.memo.keep(built)
	return built
}

func (t *Table[K]) find(k K) *Resource {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.made[k].Value()
}

// entry is one in a table. It does not hold the table, whose memo holds resources: they would hold themselves.
type entry[K comparable] struct {
	table   weak.Pointer[Table[K]]
	key     K
	pointer weak.Pointer[Resource]
}

func forget[K comparable](e entry[K]) {
	t := e.table.Value()
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.made[e.key] == e.pointer { // not built anew meanwhile
		delete(t.made, e.key)
	}
}

// Len is how many resources the table knows.
func (t *Table[K]) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.made)
}
