package quota

import (
	"container/list"
	"context"
	"slices"
	"sync"
)

// Slots bound concurrent work, such as the open requests to a server: each work of a holder takes one slot. Waiting
// holders take turns, so however much work of one holder waits, the next free slot serves another holder.
type Slots[K comparable] struct {
	each int // slots of one holder at a time

	mu      sync.Mutex
	free    int
	held    map[K]int
	waiting map[K]*list.List // elements are of type chan struct{}, closed when a slot is granted; the oldest comes first
	order   []K              // the holders in waiting, the next one first
}

// NewSlots returns all slots, of which each holder may have each at a time. Both are at least one. The zero holder,
// which stands for peers without a bound, may have all.
func NewSlots[K comparable](all, each int) *Slots[K] {
	return &Slots[K]{each: max(1, each), free: max(1, all), held: map[K]int{}, waiting: map[K]*list.List{}}
}

// Take waits for a slot for a holder, until leave is called. leave must be called once. The error is ctx.Err().
func (s *Slots[K]) Take(ctx context.Context, k K) (leave func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	got, place := s.enter(k)
	select {
	case <-got:
	case <-ctx.Done():
	}
	if err := ctx.Err(); err != nil {
		s.leave(k, got, place)
		return nil, err
	}
	return func() { s.release(k) }, nil
}

// enter adds work of a holder to the waiting work, and hands out free slots.
func (s *Slots[K]) enter(k K) (got chan struct{}, place *list.Element) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting[k] == nil {
		s.waiting[k] = list.New()
		s.order = append(s.order, k)
	}
	got = make(chan struct{})
	place = s.waiting[k].PushBack(got)
	s.grant()
	return got, place
}

// leave removes work from the waiting work, or frees its slot.
func (s *Slots[K]) leave(k K, got chan struct{}, place *list.Element) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-got:
		s.put(k)
		return
	default:
	}
	if s.waiting[k].Remove(place); s.waiting[k].Len() == 0 {
		delete(s.waiting, k)
		s.order = slices.DeleteFunc(s.order, func(o K) bool { return o == k })
	}
}

func (s *Slots[K]) release(k K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(k)
}

// get takes a free slot for a holder. The caller holds mu.
func (s *Slots[K]) get(k K) {
	s.free--
	s.held[k]++
}

// put frees a slot of a holder and grants it to the next holder. The caller holds mu.
func (s *Slots[K]) put(k K) {
	s.free++
	if s.held[k]--; s.held[k] == 0 {
		delete(s.held, k)
	}
	s.grant()
}

// grant hands out free slots, one to each waiting holder that may have one more, in turn. The caller holds mu.
func (s *Slots[K]) grant() {
	for s.free > 0 {
		i := slices.IndexFunc(s.order, s.may)
		if i < 0 {
			return
		}
		k := s.order[i]
		s.order = slices.Delete(s.order, i, i+1)
		w := s.waiting[k]
		close(w.Remove(w.Front()).(chan struct{}))
		s.get(k)
		if w.Len() > 0 {
			s.order = append(s.order, k)
		} else {
			delete(s.waiting, k)
		}
	}
}

// may reports whether a holder may have one more slot. The caller holds mu.
func (s *Slots[K]) may(k K) bool {
	var unbounded K
	return k == unbounded || s.held[k] < s.each
}

// Try takes a slot for a holder if one is free, the holder may have it, and no work waits for it. The caller must call
// leave once. leave is nil if there is no such slot.
func (s *Slots[K]) Try(k K) (leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.free == 0 || !s.may(k) {
		return nil
	}
	s.get(k)
	return func() { s.release(k) }
}

// Waiting returns how much work waits for a slot.
func (s *Slots[K]) Waiting() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.waiting {
		n += w.Len()
	}
	return n
}
