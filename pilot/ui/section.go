package ui

import (
	"sync"
	"time"
)

// section is a part of what is shown, made for all viewers at once.
type section[T any] struct {
	before func() // makes what build reads of other sections, whose cost it is; it may be nil
	build  func() T

	mu     sync.Mutex
	value  T
	serial uint64        // which making; 0: none
	made   time.Time     // when it was ready
	cost   time.Duration // of making and encoding it
	wait   time.Duration // before it is made again
}

// Bounds on how often a section is made.
const (
	// share is how many times what a section cost passes before it is made again. A view shows up to four sections, and
	// what is made in one of them burdens the garbage collector and the streams that are asked, too: all together stay
	// below a twentieth of a processor.
	share      = 150
	minWait    = time.Second
	maxWait    = 15 * time.Second
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
	if s.before != nil {
		s.before()
		began = now()
	}
	s.value = s.build()
	s.serial++
	s.made = now()
	s.cost = s.made.Sub(began)
	if s.cost < minMeasure {
		s.cost = 0
	}
	s.wait = waitAfter(s.cost)
	return s.value, s.serial
}

// charge adds to what the newest making cost: that of encoding it.
func (s *section[T]) charge(cost time.Duration) {
	if cost < minMeasure {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cost += cost
	s.wait = waitAfter(s.cost)
}

// waitAfter returns how long a section that cost so much stays as it is.
func waitAfter(cost time.Duration) time.Duration {
	return min(max(minWait, share*cost), maxWait)
}

// drop forgets the value.
func (s *section[T]) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	var none T
	s.value, s.cost, s.wait = none, 0, 0
}
