package envoy

import (
	"maps"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// Memo caches resources by their input. A builder takes one comparable value that holds everything the resource depends
// on, and equal values return the same *Resource. The memo holds resources weakly: a resource is dropped when no caller
// references it, except for those built in the last minute, which the memo keeps for configuration that flips back and
// forth. No idle secret is kept. It is safe for concurrent use.
type Memo struct {
	maxIdle      int // limit in bytes for idle resources; 0 turns the memo off
	now          func() time.Time
	hits, misses atomic.Uint64
	evictions    atomic.Uint64

	mu     sync.Mutex
	idle   *simplelru.LRU[*Resource, time.Time] // build time by resource
	bytes  int
	tables []memoTable
}

// memoTable is a MemoTable with any key type.
type memoTable interface {
	len() int
	keyOf(weak.Pointer[Resource]) any
	each(yield func(*Resource))
}

// idleAge is how long a resource is kept after it was built although it is unused. Configuration that flips back more
// rarely is built again, which is cheap at that rate. Configuration that never repeats takes at most a minute's worth
// of memory.
const idleAge = time.Minute

// NewMemo returns a memo that keeps resources for a minute after they were built, up to idle bytes of them. With idle 0
// it is off, and every resource is built again. now is the clock. If it is nil, resources do not age.
func NewMemo(idle int, now func() time.Time) *Memo {
	if now == nil {
		now = func() time.Time { return time.Time{} }
	}
	m := &Memo{maxIdle: idle, now: now}
	m.idle, _ = simplelru.NewLRU(math.MaxInt, func(r *Resource, _ time.Time) { m.bytes -= r.Cost() }) // fails only for sizes below 1
	return m
}

// addIdle keeps a resource until it is too old or newer ones need its room, even if no caller references it. Old
// resources are evicted when another one is added: without changes nothing grows.
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

// Size returns the number of resources that the memo can find: those in use, and idle ones that it keeps.
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

// Evictions returns how many idle resources were evicted since the start, because of their age or for newer ones.
func (m *Memo) Evictions() uint64 { return m.evictions.Load() }

// Stats returns the number of hits and misses since the start.
func (m *Memo) Stats() (hits, misses uint64) { return m.hits.Load(), m.misses.Load() }

// MemoTable is the part of a Memo that one builder fills. K holds everything that the builder reads, and never a
// Snapshot.
type MemoTable[K comparable] struct {
	memo  *Memo
	build func(K) *Resource

	mu      sync.Mutex
	entries map[K]weak.Pointer[Resource]
}

// NewMemoTable returns the table of one builder. build must be a pure function of its argument. It must not return a
// resource that its argument holds, because that entry would keep itself alive.
func NewMemoTable[K comparable](m *Memo, build func(K) *Resource) *MemoTable[K] {
	t := &MemoTable[K]{memo: m, build: build, entries: map[K]weak.Pointer[Resource]{}}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tables = append(m.tables, t)
	return t
}

// KeyOf returns the key of a MemoTable from which a resource was built, or nil if the resource is in no table. It scans
// every resource of the memo and is meant for requests of operators.
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

// Each calls yield for each resource of the memo. Resources that are built meanwhile may be missing.
func (m *Memo) Each(yield func(*Resource)) {
	m.mu.Lock()
	tables := m.tables
	m.mu.Unlock()
	for _, t := range tables {
		t.each(yield)
	}
}

func (t *MemoTable[K]) each(yield func(*Resource)) {
	t.mu.Lock()
	list := slices.Collect(maps.Values(t.entries))
	t.mu.Unlock()
	for _, p := range list {
		if r := p.Value(); r != nil {
			yield(r)
		}
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

// Get returns the resource for k, and builds it if it is not in memory.
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
	if r := t.entries[k].Value(); r != nil { // another goroutine built it first; all share its pointer
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
	if t.entries[e.key] == e.pointer { // not rebuilt meanwhile
		delete(t.entries, e.key)
	}
}

// Len returns the number of resources in the table.
func (t *MemoTable[K]) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.entries)
}
