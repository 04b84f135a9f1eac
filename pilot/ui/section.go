package ui

import (
	"sync"
	"time"
)

// section is a part of the page that is built for all viewers at once.
type section[T any] struct {
	// before builds other sections that build reads, whose cost is theirs. Optional.
	before func()
	build  func() T
	// sharers are the sections that share the time of one. Optional.
	sharers interface{ Len() int }
	// background starts builds. It is set if build waits for other replicas: then the old value is shown meanwhile,
	// unless the last build was quick. Otherwise nil.
	background starter

	mu       sync.Mutex
	value    T
	serial   uint64        // number of the build; 0 for none
	made     time.Time     // end of the last build
	cost     time.Duration // duration of the last build and of encoding it
	wait     time.Duration // least time before the next build
	slow     bool          // the last build has waited for long
	building bool          // a build runs in the background
}

// starter starts a function in a goroutine of its own.
type starter interface{ start(fn func()) }

// Bounds of the rate of builds.
const (
	// share is the ratio of the time between builds to the cost of a build. A view has up to four sections, and a build
	// also burdens the garbage collector and the streams. All together must stay below a twentieth of a processor.
	share      = 150
	minWait    = time.Second
	maxWait    = 15 * time.Second
	minMeasure = time.Millisecond // shorter times are not meaningful
	slowBuild  = 100 * time.Millisecond
)

// get returns the section and the number of its build. It builds the section if it is old.
func (s *section[T]) get(now func() time.Time) (T, uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	began := now()
	if s.serial > 0 && began.Sub(s.made) < s.wait {
		return s.value, s.serial
	}
	if s.slow {
		if !s.building {
			s.building = true
			s.background.start(func() { s.rebuild(now) })
		}
		return s.value, s.serial
	}
	if s.before != nil {
		s.before()
		began = now()
	}
	s.set(s.build(), began, now())
	return s.value, s.serial
}

// rebuild builds the section while its old value is shown.
func (s *section[T]) rebuild(now func() time.Time) {
	began := now()
	done := false
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.building = false; !done { // a panic
			s.made = now()
		}
	}()
	value := s.build()
	s.mu.Lock()
	s.set(value, began, now())
	s.mu.Unlock()
	done = true
}

// set sets the value of a build. The caller holds mu.
func (s *section[T]) set(value T, began, ended time.Time) {
	s.value, s.made = value, ended
	s.serial++
	took := ended.Sub(began)
	if s.slow = s.background != nil && took >= slowBuild; s.slow {
		took /= share // it waited
	}
	if s.cost = took; took < minMeasure {
		s.cost = 0
	}
	s.wait = s.waitAfter(s.cost)
}

// charge adds the cost of encoding to the cost of the last build.
func (s *section[T]) charge(cost time.Duration) {
	if cost < minMeasure {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cost += cost
	s.wait = s.waitAfter(s.cost)
}

// waitAfter returns the time to the next build after one with the given cost.
func (s *section[T]) waitAfter(cost time.Duration) time.Duration {
	if s.sharers != nil {
		cost *= time.Duration(s.sharers.Len())
	}
	return min(max(minWait, share*cost), maxWait)
}

// drop drops the value.
func (s *section[T]) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	var none T
	s.value, s.cost, s.wait, s.slow = none, 0, 0, false
}
