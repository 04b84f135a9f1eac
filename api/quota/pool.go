package quota

import (
	"container/list"
	"sync"
)

// Pool is a number of places that holders keep for long, such as the places of streams. The last tenth of the places is
// for holders that have at most a tenth of the pool, so a holder that takes all other places keeps out no holder that
// needs few. A holder that has more waits while only the last tenth is free.
type Pool[K comparable] struct {
	mu        sync.Mutex
	all       int
	free      int        // negative if more places are held than there are
	held      map[K]int  // including places that are waited for
	few, many *list.List // what waits, of type chan struct{}, closed when a place is granted; the oldest comes first
}

// NewPool returns a Pool of some places.
func NewPool[K comparable](all int) *Pool[K] {
	return &Pool[K]{all: all, free: all, held: map[K]int{}, few: list.New(), many: list.New()}
}

// Resize changes the number of places. Holders keep the places that they have.
func (p *Pool[K]) Resize(all int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free, p.all = all-(p.all-p.free), all
	p.grant()
}

// Waiting returns how many places are waited for.
func (p *Pool[K]) Waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.few.Len() + p.many.Len()
}

// Enter asks for a place for a holder. got is closed once the holder has it. leave gives the place back, or ends the
// wait for it; it must be called. The zero holder stands for peers without a bound, and is always a holder with few
// places.
func (p *Pool[K]) Enter(k K) (got <-chan struct{}, leave func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var unbounded K
	p.held[k]++
	queue, granted := p.many, make(chan struct{})
	if k == unbounded || p.held[k] <= Share(p.all) {
		queue = p.few
	}
	place := queue.PushBack(granted)
	p.grant()
	return granted, sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.held[k]--; p.held[k] == 0 {
			delete(p.held, k)
		}
		select {
		case <-granted:
			p.free++
		default:
			queue.Remove(place)
		}
		p.grant()
	})
}

// grant hands out the free places. The caller holds mu.
func (p *Pool[K]) grant() {
	next := func(l *list.List, least int) bool {
		if l.Len() == 0 || p.free <= least {
			return false
		}
		close(l.Remove(l.Front()).(chan struct{}))
		p.free--
		return true
	}
	for next(p.few, 0) || next(p.many, p.all/10) {
	}
}
