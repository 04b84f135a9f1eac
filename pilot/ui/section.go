package ui

import (
	"sync"
	"time"
)

// section is a part of what is shown, made for all viewers at once.
type section[T any] struct {
	build func() T

	mu     sync.Mutex
	value  T
	serial uint64        // which making; 0: none
	made   time.Time     // when it was ready
	wait   time.Duration // before it is made again
}

// Bounds on how often a section is made.
const (
	share      = 50 // times what it cost pass before it is made again
	minWait    = time.Second
	maxWait    = 30 * time.Second
	minMeasure = time.Millisecond // shorter times say nothing
)

// get returns the section and which making it is. It is made anew if it is old.
func (s *section[T]) get(now func() time.Time) (T, uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	began := now()
	if s.serial > 0 && began.Sub(s.made) < s.wait {
		return s.value, s.serial
	}
	s.value = s.build()
	s.serial++
	s.made = now()
	cost := s.made.Sub(began)
	if cost < minMeasure {
		cost = 0
	}
	s.wait = min(max(minWait, share*cost), maxWait)
	return s.value, s.serial
}

// drop forgets the value.
func (s *section[T]) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	var none T
	s.value, s.wait = none, 0
}
