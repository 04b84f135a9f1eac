package pushes

import (
	"sync/atomic"
	"time"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// Tally counts the responses of one push. Its methods are safe for concurrent use, and do nothing for nil.
type Tally struct {
	id      uint64
	streams atomic.Int64 // streams that were sent a response
	acked   atomic.Int64 // streams that have acknowledged all responses
	nacked  atomic.Int64 // streams that have rejected a response
	lost    atomic.Int64 // streams that ended before, or are too far behind to tell

	first, last, ack atomic.Int64 // nanoseconds of the Unix epoch, or 0
	types            [maxTypes]typeTally
}

// maxTypes is the number of types with their own counts. The last one is for all other types.
const maxTypes = 12

type typeTally struct{ responses, resources, removed, bytes atomic.Int64 }

// Outcome is the result of a push at a stream.
type Outcome int

// Outcomes of a push at a stream.
const (
	Acknowledged Outcome = iota
	Rejected
	Lost
)

// Started counts a stream at its first response.
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
	if t.first.Load() == 0 { // usually set; a failed swap would still invalidate the cache line
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

// Ended records the outcome of a push at a stream. again is true if the stream was counted already and was sent more
// responses afterwards.
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

// typeIndex returns the index of a type in a Tally, which is its index in envoy.Types.
func typeIndex(typeURL string) int { return min(envoy.TypeIndex(typeURL), maxTypes-1) }

// describe sets the counts of a Push.
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
