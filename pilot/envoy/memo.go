package envoy

import (
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// Memo caches resources by what they are built from. A builder gets one comparable value that holds everything the
// resource depends on, and equal values return the same *Resource. Whoever uses a resource owns it. The memo holds
// resources weakly, so that it forgets unused ones, except for those built in the last minute, which it keeps for
// configuration that flips back and forth. No idle secret is kept. Safe for concurrent use.
type Memo struct {
	maxIdle      int // bytes that are kept of idle ones; 0: the memo is off
	now          func() time.Time
	hits, misses atomic.Uint64
	evictions    atomic.Uint64

	mu     sync.Mutex
	idle   *simplelru.LRU[*Resource, time.Time] // when each was built
	bytes  int
	tables []memoTable
}

// memoTable is a MemoTable of any key.
type memoTable interface {
	len() int
	keyOf(weak.Pointer[Resource]) any
	eachKey(known func(weak.Pointer[Resource]) bool, yield func(weak.Pointer[Resource], any))
}

// idleAge is how long a resource is kept from when it was built, though nobody uses it. What flips back more rarely is
// built again, which costs next to nothing at that pace. Configuration that is always new takes no more than a minute's
// worth of memory.
const idleAge = time.Minute

// NewMemo returns a memo that keeps resources for a minute from when they were built, up to idle bytes of them. With
// idle 0 it is off, and every resource is built again. now is the clock; without one resources do not age.
func NewMemo(idle int, now func() time.Time) *Memo {
	if now == nil {
		now = func() time.Time { return time.Time{} }
	}
	m := &Memo{maxIdle: idle, now: now}
	m.idle, _ = simplelru.NewLRU(math.MaxInt, func(r *Resource, _ time.Time) { m.bytes -= r.Cost() }) // fails only for sizes below 1
	return m
}

// addIdle holds a resource until newer ones need its room or it is old, whether or not anybody else holds it. What is
// old goes when another one comes: without changes nothing grows.
func (m *Memo) addIdle(r *Resource) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	m.idle.Add(r, now)
	m.bytes += r.Cost()
	for {
		_, built, any := m.idle.GetOldest()
		if !any || m.bytes <= m.maxIdle && now.Sub(built) <= idleAge {
			return
		}
		m.idle.RemoveOldest()
		m.evictions.Add(1)
	}
}

// Len returns the number of resources that the memo keeps by itself.
func (m *Memo) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.idle.Len()
}

// Size returns the number of resources that the memo finds: those that are in use, and those that it keeps.
func (m *Memo) Size() int {
	m.mu.Lock()
	tables := m.tables
	m.mu.Unlock()
	n := 0
	for _, t := range tables {
		n += t.len()
	}
	return n
}

// Evictions returns how many of the resources that the memo keeps had to go since the start, for newer ones or by age.
func (m *Memo) Evictions() uint64 { return m.evictions.Load() }

// Stats returns the hits and misses since the start.
func (m *Memo) Stats() (hits, misses uint64) { return m.hits.Load(), m.misses.Load() }

// MemoTable is the part of a Memo that one builder fills. K is everything that the builder reads: never a Snapshot.
type MemoTable[K comparable] struct {
	memo  *Memo
	build func(K) *Resource

	mu      sync.Mutex
	entries map[K]weak.Pointer[Resource]
}

// NewMemoTable returns the table of one builder. build must be a pure function of its argument, and
// return no resource that its argument holds: that would keep itself.
func NewMemoTable[K comparable](m *Memo, build func(K) *Resource) *MemoTable[K] {
	t := &MemoTable[K]{memo: m, build: build, entries: map[K]weak.Pointer[Resource]{}}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tables = append(m.tables, t)
	return t
}

// KeyOf returns what a resource was built from, the key of a MemoTable, or nil if it is in none. It looks at every
// resource of the memo, for a few questions of a person's.
func (m *Memo) KeyOf(r *Resource) any {
	m.mu.Lock()
	tables := m.tables
	m.mu.Unlock()
	p := weak.Make(r)
	for _, t := range tables {
		if k := t.keyOf(p); k != nil {
			return k
		}
	}
	return nil
}

// EachKey calls yield with a resource of the memo that known does not know, and its key. Resources that are made
// meanwhile may be missing.
func (m *Memo) EachKey(known func(weak.Pointer[Resource]) bool, yield func(weak.Pointer[Resource], any)) {
	m.mu.Lock()
	tables := m.tables
	m.mu.Unlock()
	for _, t := range tables {
		t.eachKey(known, yield)
	}
}

func (t *MemoTable[K]) eachKey(known func(weak.Pointer[Resource]) bool, yield func(weak.Pointer[Resource], any)) {
	type found struct {
		key K
		is  weak.Pointer[Resource]
	}
	var list []found
	t.mu.Lock()
	for k, is := range t.entries {
		if !known(is) {
			list = append(list, found{k, is})
		}
	}
	t.mu.Unlock()
	for _, x := range list {
		yield(x.is, x.key)
	}
}

func (t *MemoTable[K]) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.entries)
}

func (t *MemoTable[K]) keyOf(p weak.Pointer[Resource]) any {
	t.mu.Lock()
	defer t.mu.Unlock()
	for k, is := range t.entries {
		if is == p {
			return k
		}
	}
	return nil
}

// Get returns the resource for k. It is built if nobody holds it.
func (t *MemoTable[K]) Get(k K) *Resource {
	if t.memo.maxIdle == 0 {
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
	if r := t.entries[k].Value(); r != nil { // somebody else was quicker: one pointer for all
		return r
	}
	p := weak.Make(built)
	t.entries[k] = p
	runtime.AddCleanup(built, evict[K], entry[K]{weak.Make(t), k, p})
	if !built.secret {
		t.memo.addIdle(built)
	}
	return built
}

func (t *MemoTable[K]) find(k K) *Resource {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.entries[k].Value()
}

// entry identifies an entry of a table. It holds the table weakly: the memo of the table holds resources, which would
// keep themselves alive.
type entry[K comparable] struct {
	table   weak.Pointer[MemoTable[K]]
	key     K
	pointer weak.Pointer[Resource]
}

func evict[K comparable](e entry[K]) {
	t := e.table.Value()
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.entries[e.key] == e.pointer { // not built anew meanwhile
		delete(t.entries, e.key)
	}
}

// Len returns the number of resources in the table.
func (t *MemoTable[K]) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.entries)
}
