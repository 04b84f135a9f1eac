package pushes

import (
	"sync/atomic"
	"time"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// Tally counts what streams were sent because of one push. Its methods may be called from any goroutine, and do nothing
// for nil.
type Tally struct {
	id      uint64
	streams atomic.Int64 // that were sent something
	acked   atomic.Int64 // of them, those that have acknowledged all of it
	nacked  atomic.Int64 // likewise: those that rejected some of it
	lost    atomic.Int64 // likewise: those that ended before, or were sent so much more that it is not known

	first, last, ack atomic.Int64 // nanoseconds of the Unix epoch; 0: not yet
	types            [maxTypes]typeTally
}

// maxTypes is how many types are told apart; the last stands for all others.
const maxTypes = 12

type typeTally struct{ responses, resources, removed, bytes atomic.Int64 }

// Outcome is how a stream ended to wait for the acknowledgement of a push.
type Outcome int

// The outcomes.
const (
	Acknowledged Outcome = iota
	Rejected
	Lost
)

// Started counts a stream that is sent something for the first time.
func (t *Tally) Started() {
	if t != nil {
		t.streams.Add(1)
	}
}

// Sent counts one response.
func (t *Tally) Sent(now time.Time, typeURL string, resources, removed, bytes int) {
	if t == nil {
		return
	}
	at := now.UnixNano()
	if t.first.Load() == 0 { // most find it set: a swap that fails would still take the cache line from others
		t.first.CompareAndSwap(0, at)
	}
	latest(&t.last, at)
	x := &t.types[typeIndex(typeURL)]
	x.responses.Add(1)
	x.resources.Add(int64(resources))
	if removed > 0 {
		x.removed.Add(int64(removed))
	}
	x.bytes.Add(int64(bytes))
}

// Ended counts a stream that waits no more. again: it was counted already, and was sent more afterwards.
func (t *Tally) Ended(now time.Time, o Outcome, again bool) {
	if t == nil {
		return
	}
	if o != Lost {
		latest(&t.ack, now.UnixNano())
	}
	if again {
		return
	}
	switch o {
	case Acknowledged:
		t.acked.Add(1)
	case Rejected:
		t.nacked.Add(1)
	case Lost:
		t.lost.Add(1)
	}
}

func latest(to *atomic.Int64, at int64) {
	for was := to.Load(); at > was; was = to.Load() {
		if to.CompareAndSwap(was, at) {
			return
		}
	}
}

// typeIndex returns the place of a type in a Tally, which is that in envoy.Types.
func typeIndex(typeURL string) int { return min(envoy.TypeIndex(typeURL), maxTypes-1) }

// describe adds the numbers to a Push.
func (t *Tally) describe(p *Push) {
	p.Proxies, p.Acked, p.Rejected, p.Lost = t.streams.Load(), t.acked.Load(), t.nacked.Load(), t.lost.Load()
	p.Pending = max(0, p.Proxies-p.Acked-p.Rejected-p.Lost)
	at := func(n *atomic.Int64) *time.Time {
		if n := n.Load(); n != 0 {
			x := time.Unix(0, n).UTC()
			return &x
		}
		return nil
	}
	p.FirstSend, p.LastSend, p.LastAck = at(&t.first), at(&t.last), at(&t.ack)
	for i, name := range envoy.ShortTypes() {
		x := &t.types[i]
		n := TypeCount{Type: name, Responses: x.responses.Load(), Resources: x.resources.Load(), Removed: x.removed.Load(), Bytes: x.bytes.Load()}
		if n.Responses == 0 {
			continue
		}
		p.Types = append(p.Types, n)
		p.Responses += n.Responses
		p.Resources += n.Resources
		p.Removed += n.Removed
		p.Bytes += n.Bytes
	}
}
