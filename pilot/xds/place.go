package xds

import (
	"time"

	"github.com/istiod-lite/istiod-lite/pilot/xds/wire"
)

// place is the place of a stream while it is sent its first configuration. A stream has it once, from the turn in which
// the first response is made until the client has acknowledged all responses.
type place struct {
	got   <-chan struct{} // closed when the place is granted; nil before the stream asks for it
	leave func()          // nil unless the stream waits for the place or has it
	ends  time.Time       // when the stream gives it back at the latest; zero before it is granted
	bytes int             // of the responses so far
}

const (
	// placeMax bounds the time in which a stream has its place. By then, a collection has shown what the stream takes.
	placeMax = 10 * time.Second
	// placeQuiet is how long a client must request nothing after it has acknowledged everything. An Envoy requests one
	// type after the other.
	placeQuiet = 200 * time.Millisecond
)

// takePlace asks for the place of the stream. It reports whether the stream has it, or has had it. A stream that
// resumes needs none, because its client has most resources.
func (c *conn) takePlace() bool {
	p := &c.place
	if !p.ends.IsZero() || c.session.Resumed() {
		return true
	}
	if p.got == nil {
		h, _ := c.peer.Holder()
		p.got, p.leave = c.server.admission.memory.place(h)
	}
	select {
	case <-p.got:
		p.ends = time.Now().Add(placeMax)
		c.deadlines.set(placed, p.ends)
		return true
	default:
		return false
	}
}

// countPlace counts a response of the first configuration.
func (c *conn) countPlace(r *wire.Response) {
	if p := &c.place; p.leave != nil {
		p.bytes += r.Size()
		c.server.admission.memory.sent(p.bytes)
	}
}

// countPlaceAll records that the client was sent all that it has requested.
func (c *conn) countPlaceAll() {
	if p := &c.place; p.leave != nil && p.bytes > 0 {
		c.server.admission.memory.sentAll(p.bytes)
	}
}

// keepPlace sets the deadline of the place after a request.
func (c *conn) keepPlace() {
	p := &c.place
	switch {
	case p.leave == nil || p.ends.IsZero():
	case !c.configured():
		c.deadlines.set(placed, p.ends)
	case c.deadlines[placed].Equal(p.ends):
		c.deadlines.set(placed, time.Now().Add(placeQuiet))
	}
}

// configured reports whether the client has acknowledged all that it has requested.
func (c *conn) configured() bool {
	return c.joined && !c.session.Pending() && c.session.Unacknowledged() == 0
}

// leavePlace returns the place of the stream, or ends the wait for one.
func (c *conn) leavePlace() {
	p := &c.place
	if p.leave == nil {
		return
	}
	p.leave()
	p.leave = nil
	c.deadlines.clear(placed)
}
