package xds

import (
	"slices"
	"strings"
	"time"

	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/pushes"
	"github.com/istiod-lite/istiod-lite/pilot/xds/session"
	"github.com/istiod-lite/istiod-lite/pilot/xds/wire"
)

// account is how a stream counts what it sends, for package pushes. It is the owner's alone.
type account struct {
	tally *pushes.Tally // of the push that was taken last; nil: there was none, or it is not recorded
	since time.Time     // when something was last sent because of it, or it was taken
	last  *pushes.Tally // in which the stream was counted last
	waits []wait        // for acknowledgements, oldest first
}

// wait is a push of which something has not been acknowledged yet.
type wait struct {
	tally    *pushes.Tally
	number   uint64 // of the last response
	again    bool   // the stream was counted in the tally before
	rejected bool
}

const (
	// followUp is how long what a client asks for counts for the push before: new clusters have it ask for endpoints.
	followUp = 2 * time.Second
	// maxWaits bounds the pushes that a client may be behind before the oldest counts as lost.
	maxWaits = 8
	// maxLookups bounds how many rejections in a second are traced to objects.
	maxLookups = 10
	// maxNamed is how many resources a rejection names at most.
	maxNamed = 8
)

// take begins with what a push brings.
func (a *account) take(p *session.Push) {
	a.tally, a.since = p.Tally, p.Queued
}

// countSent counts a response that is about to be sent.
func (c *conn) countSent(r *wire.Response, now time.Time) {
	a := &c.account
	if c.server.o.Pushes == nil {
		return
	}
	t := a.tally
	if t == nil || c.pass.received.IsZero() && now.Sub(a.since) > followUp {
		t = c.server.o.Pushes.Unprompted()
	} else {
		a.since = now
	}
	t.Sent(now, r.TypeURL, len(r.Resources), len(r.Removed), r.Size())
	number := c.session.Responses()
	if n := len(a.waits); n > 0 && a.waits[n-1].tally == t {
		a.waits[n-1].number = number
		return
	}
	again := a.last == t
	if !again {
		t.Started()
		a.last = t
	}
	if len(a.waits) == maxWaits {
		a.settle(0, now, pushes.Lost)
	}
	a.waits = append(a.waits, wait{tally: t, number: number, again: again})
}

// settle ends the wait of that index.
func (a *account) settle(i int, now time.Time, o pushes.Outcome) {
	w := a.waits[i]
	w.tally.Ended(now, o, w.again)
	a.waits = slices.Delete(a.waits, i, i+1)
}

// countAnswered ends the waits of which the client has answered everything.
func (c *conn) countAnswered(now time.Time) {
	a := &c.account
	if len(a.waits) == 0 {
		return
	}
	oldest := c.session.OldestUnacknowledged()
	for len(a.waits) > 0 && (oldest == 0 || a.waits[0].number < oldest) {
		o := pushes.Acknowledged
		if a.waits[0].rejected {
			o = pushes.Rejected
		}
		a.settle(0, now, o)
	}
}

// countRejected records what the client did not take, and where that comes from.
func (c *conn) countRejected(v session.Verdict, now time.Time) {
	s, a := c.server, &c.account
	if s.o.Pushes == nil {
		return
	}
	t := a.last
	for i := range a.waits {
		if w := &a.waits[i]; v.Number != 0 && w.number >= v.Number {
			w.rejected, t = true, w.tally
			break
		}
	}
	message := strings.TrimSpace(v.Message)
	about := meant(v.Resources, message)
	r := pushes.Rejection{
		Time: now, Proxy: c.proxy.ID, Type: envoy.ShortType(v.TypeURL), Code: v.Code.String(), Message: shorten(message, 2<<10), Of: len(v.Resources), Resources: []string{},
	}
	for _, x := range about {
		r.Resources = append(r.Resources, x.Name)
	}
	s.o.Pushes.Reject(t, r, func() []pushes.Object { return s.sourcesOf(about) })
	c.countAnswered(now)
}

// meant returns the resources that a rejection is about: those that its message names, else all if they are few.
func meant(list []*envoy.Resource, message string) []*envoy.Resource {
	var named []*envoy.Resource
	for _, r := range list {
		if len(list) > 1 && mentions(message, r.Name) && len(named) < maxNamed {
			named = append(named, r)
		}
	}
	switch {
	case len(named) > 0:
		return named
	case len(list) <= maxNamed:
		return list
	}
	return nil
}

// mentions reports whether a message has a name, and not as a part of a longer one.
func mentions(message, name string) bool {
	if name == "" {
		return false
	}
	inName := func(c byte) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("_|-/", c) >= 0
	}
	for rest, before := message, byte(' '); ; {
		i := strings.Index(rest, name)
		if i < 0 {
			return false
		}
		if i > 0 {
			before = rest[i-1]
		}
		after := rest[i+len(name):]
		if len(after) > 1 && (after[0] == '.' || after[0] == ':') { // the end of a sentence, or a part of a name
			after = after[1:]
		}
		if !inName(before) && before != '.' && (after == "" || !inName(after[0])) {
			return true
		}
		before, rest = rest[i], rest[i+1:]
	}
}

// sourcesOf returns the objects that resources are made of. If clients reject very much, some is not looked up.
func (s *Server) sourcesOf(list []*envoy.Resource) []pushes.Object {
	if len(list) == 0 || !s.lookups.Allow() {
		return nil
	}
	var out []pushes.Object
	seen := map[pushes.Object]bool{}
	_ = safe.Do("trace a rejected resource", func() {
		for _, r := range list {
			for _, o := range s.o.World.Sources(r) {
				if !seen[o] && len(out) < pushes.MaxCauses {
					seen[o] = true
					out = append(out, o)
				}
			}
		}
	})
	return out
}

// end counts what the client will not acknowledge any more.
func (a *account) end(now time.Time) {
	for len(a.waits) > 0 {
		a.settle(0, now, pushes.Lost)
	}
}
