package xds

import "sync"

// memo keeps what was made of a key until a new snapshot comes, for the streams of a cohort all ask the same. Safe for concurrent use.
type memo[K comparable, V any] struct {
	mu   sync.Mutex
	made map[K]V
}

// maxMade bounds what a memo keeps: slow streams may each ask something else.
const maxMade = 1024

// get gives what was made of k, or makes it.
func (m *memo[K, V]) get(k K, make func() V) V {
	m.mu.Lock()
	v, ok := m.made[k]
	m.mu.Unlock()
	if ok {
		return v
	}
	v = make()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.made == nil || len(m.made) >= maxMade {
		m.made = map[K]V{}
	}
	m.made[k] = v
	return v
}

func (m *memo[K, V]) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.made = nil
}
