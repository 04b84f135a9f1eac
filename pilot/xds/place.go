package xds

import (
	"time"

	"github.com/istiod-lite/istiod-lite/pilot/xds/wire"
)

// place is the permission of a stream to be sent its first configuration. A stream has it once, from the turn in which
// the first response is made until the client has acknowledged all responses. A stream that resumes needs it only if
// its client lacks much of what it should have, whatever versions it names.
type place struct {
	got   <-chan struct{} // closed when the place is granted; nil before the stream asks for it
	leave func()          // nil unless the stream waits for the place or has it
	ends  time.Time       // when the stream gives it back at the latest; zero while the stream may still need it
	bytes int             // of the responses until then
}

// placeQuiet is how long a client must request nothing after it has acknowledged everything, until it gives its place
// back. An Envoy requests one type after the other.
const placeQuiet = 200 * time.Millisecond

// takePlace asks for the place of the stream. It reports whether the stream has it, has had it, or needs none.
func (c *conn) takePlace() bool {
	p := &c.place
	switch {
	case !p.ends.IsZero(), p.got == nil && c.session.Resumed() && p.bytes < firstLeast:
		return true
	case p.got == nil:
		h, _ := c.peer.Holder()
		p.got, p.leave = c.server.admission.memory.place(h.Tenant())
	}
	select {
	case <-p.got:
		c.began = time.Now()
		p.ends = c.began.Add(c.server.o.Limits.FirstConfiguration)
		c.deadlines.set(placed, p.ends)
		return true
	default:
		return false
	}
}

// countFirst counts a response of the first configuration.
func (c *conn) countFirst(r *wire.Response) {
	p := &c.place
	if p.leave == nil && !p.ends.IsZero() {
		return
	}
	if p.bytes += r.Size(); p.leave != nil {
		c.server.admission.memory.sent(p.bytes)
	}
}

// endFirst records that the client was sent all that it has requested so far.
func (c *conn) endFirst() {
	if p := &c.place; p.leave != nil && p.bytes > 0 {
		c.server.admission.memory.sentAll(p.bytes)
	}
}

// keepPlace sets the deadline of the place after a request.
func (c *conn) keepPlace() {
	p := &c.place
	if p.leave == nil && !p.ends.IsZero() { // it has had its place, or needs none
		return
	}
	whole := c.configured()
	switch {
	case p.got == nil && whole && p.bytes < firstLeast: // it has resumed, and needs no place
		p.ends = time.Now()
	case p.leave == nil || p.ends.IsZero():
	case !whole:
		c.deadlines.set(placed, p.ends)
	case c.deadlines[placed].Equal(p.ends):
		if quiet := time.Now().Add(placeQuiet); quiet.Before(p.ends) {
			c.deadlines.set(placed, quiet)
		}
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
	if !p.ends.IsZero() && c.configured() {
		c.server.admission.memory.whole(p.bytes)
	}
	p.leave()
	p.leave = nil
	c.deadlines.clear(placed)
}
