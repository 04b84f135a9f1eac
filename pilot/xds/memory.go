package xds

import (
	"math"
	"runtime"
	"runtime/debug"
	runtimemetrics "runtime/metrics"
	"sync"
	"time"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/api/quota"
)

// memory limits the streams that are served, and the first configurations that are sent, by the memory that is left. A
// new stream needs a slot, and a stream that is sent its first configuration a place. If there is too little memory,
// streams wait for both in the order of quota.Pool. It is safe for concurrent use.
type memory struct {
	streams int                          // number of slots while memory is not short
	slots   *quota.Pool[identity.Tenant] // it has no slots while memory is short
	places  *quota.Pool[identity.Tenant] // as many as first configurations fit into most, and into the memory that is left
	timer   *time.Timer                  // measures again while streams wait for memory

	mu    sync.Mutex
	armed bool // the timer runs
	most  int  // bytes of all first configurations that are being sent
	first int  // bytes of a first configuration
	known bool // first is not a guess

	collections uint64    // number of garbage collections when memory was last measured
	collected   time.Time // when that number was first seen
}

const (
	// firstGuess is the size of a first configuration before one was sent, and firstLeast the least that is assumed.
	firstGuess, firstLeast = 32 << 20, 256 << 10
	// measureInterval is the time between measurements while streams wait.
	measureInterval = 100 * time.Millisecond
	// collectInterval is the time without a collection after which one is forced while streams wait. Only a collection
	// shows what is live.
	collectInterval = 2 * time.Second
)

// newMemory returns a memory for a number of concurrent streams, and for most bytes of first configurations that are
// sent at a time. With more of them streams would get less each, and a client that gets nothing for long loses its
// connection. With 10,000 services a first configuration has 21 MB.
func newMemory(streams, most int) *memory {
	m := &memory{
		streams: streams, slots: quota.NewPool[identity.Tenant](streams), places: quota.NewPool[identity.Tenant](math.MaxInt),
		most: most, first: firstGuess,
	}
	m.timer = time.AfterFunc(time.Hour, m.grant)
	m.timer.Stop()
	return m
}

// slot asks for a slot of a stream, as quota.Pool does.
func (m *memory) slot(t identity.Tenant) (got <-chan struct{}, leave func()) {
	return m.ask(m.slots, t)
}

// place asks for a place of a stream, as quota.Pool does.
func (m *memory) place(t identity.Tenant) (got <-chan struct{}, leave func()) {
	return m.ask(m.places, t)
}

func (m *memory) ask(p *quota.Pool[identity.Tenant], t identity.Tenant) (got <-chan struct{}, leave func()) {
	m.resize()
	got, leave = p.Enter(t)
	select {
	case <-got:
	default:
		m.mu.Lock()
		defer m.mu.Unlock()
		if !m.armed {
			m.armed = true
			m.timer.Reset(measureInterval)
		}
	}
	return got, leave
}

// short reports whether memory is short.
func (m *memory) short() bool { return m.resize() < 0 }

// resize sets the sizes of the pools to what fits into the memory that is left, and returns that memory in bytes.
func (m *memory) resize() (left int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	left = min(memoryLeft(), m.most)
	slots := m.streams
	if left < 0 {
		slots = 0
	}
	m.slots.Resize(slots)
	m.places.Resize(max(1, left/m.first))
	return left
}

// grant measures memory while streams wait for it. If they wait for long, it collects garbage.
func (m *memory) grant() {
	left := m.resize()
	if m.awaited(left) && left < m.most && m.stale(time.Now()) {
		runtime.GC()
		left = m.resize()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.armed = m.awaited(left); m.armed {
		m.timer.Reset(measureInterval)
	}
}

// awaited reports whether streams wait for memory. Where memory is not short, slots are awaited until a stream ends.
func (m *memory) awaited(left int) bool {
	return m.places.Waiting() > 0 || left < 0 && m.slots.Waiting() > 0
}

// stale reports whether the last collection was long ago.
func (m *memory) stale(now time.Time) bool {
	n := []runtimemetrics.Sample{{Name: "/gc/cycles/total:gc-cycles"}}
	runtimemetrics.Read(n)
	m.mu.Lock()
	defer m.mu.Unlock()
	if is := n[0].Value.Uint64(); is != m.collections {
		m.collections, m.collected = is, now
	}
	return now.Sub(m.collected) > collectInterval
}

// sent records that a stream was sent so many bytes of its first configuration so far. No stream makes the number of
// places less than four.
func (m *memory) sent(bytes int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.first = max(m.first, min(bytes, m.most/4))
}

// sentAll records that a stream was sent all that it has requested so far. The first such stream replaces the guess.
func (m *memory) sentAll(bytes int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.known {
		m.known, m.first = true, max(min(bytes, m.most/4), firstLeast)
	}
}

// whole records the size of a first configuration that a client has acknowledged. A larger size is forgotten slowly.
func (m *memory) whole(bytes int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.first = max(m.first-m.first/8, min(bytes, m.most/4), firstLeast)
}

// memoryLeft returns the bytes between what was live at the last collection and 85 % of the memory limit. It returns
// math.MaxInt without a limit.
func memoryLeft() int {
	limit := debug.SetMemoryLimit(-1)
	if limit == math.MaxInt64 {
		return math.MaxInt
	}
	live := []runtimemetrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	runtimemetrics.Read(live)
	return int(limit)/100*85 - int(live[0].Value.Uint64()+live[1].Value.Uint64()) //nolint:gosec // less than a process has
}
