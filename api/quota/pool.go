package quota

import (
	"container/list"
	"sync"
)

// Pool is a number of places that holders keep for long, such as the places of streams. The last tenth of the places is
// for holders that have at most a tenth of the pool, so a holder that takes all other places keeps out no holder that
// needs few. A holder that has more waits while only the last tenth is free. Holders with few places go first until
// they have a tenth of the places together; then the one that has waited longest does.
type Pool[K comparable] struct {
	mu        sync.Mutex
	all       int
	free      int        // negative if more places are held than there are
	held      map[K]int  // including places that are waited for
	few, many *list.List // requests of type *waiting, the oldest first
	ofFew     int        // places that were granted from few
	number    uint64     // of the last request
}

// waiting is a request for a place.
type waiting struct {
	granted chan struct{} // closed when the place is granted
	number  uint64
	few     bool
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
	p.number++
	w := &waiting{make(chan struct{}), p.number, k == unbounded || p.held[k] <= Share(p.all)}
	queue := p.many
	if w.few {
		queue = p.few
	}
	place := queue.PushBack(w)
	p.grant()
	return w.granted, sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.held[k]--; p.held[k] == 0 {
			delete(p.held, k)
		}
		select {
		case <-w.granted:
			p.free++
			if w.few {
				p.ofFew--
			}
		default:
			queue.Remove(place)
		}
		p.grant()
	})
}

// grant hands out the free places. The caller holds mu.
func (p *Pool[K]) grant() {
	for p.free > 0 {
		few, many := p.few.Front(), p.many.Front()
		if p.free <= p.all/10 {
			many = nil
		}
		from, next := p.few, few
		if few == nil || many != nil && p.ofFew >= p.all/10 && number(many) < number(few) {
			from, next = p.many, many
		}
		if next == nil {
			return
		}
		w := from.Remove(next).(*waiting)
		if w.few {
			p.ofFew++
		}
		p.free--
		close(w.granted)
	}
}

func number(e *list.Element) uint64 { return e.Value.(*waiting).number }
