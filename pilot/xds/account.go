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

// account attributes the responses of a stream to pushes, for package pushes. Only the owner of the stream uses it.
type account struct {
	tally *pushes.Tally // tally of the push that the stream took last; nil if it is not recorded
	since time.Time     // time of the last response for that push, or when the push was queued
	last  *pushes.Tally // tally in which the stream was started last
	waits []wait        // pushes that are not fully acknowledged, oldest first
}

// wait is a push with a response that the client has not acknowledged yet.
type wait struct {
	tally    *pushes.Tally
	number   uint64 // number of the last response
	again    bool   // the stream was already started in the tally
	rejected bool
}

const (
	// followUp is how long a request is attributed to the push before it: new clusters make a client request endpoints.
	followUp = 2 * time.Second
	// maxWaits bounds the unacknowledged pushes of a client. The oldest becomes pushes.Lost beyond that.
	maxWaits = 8
	// maxLookups bounds the rejections per second whose objects are looked up.
	maxLookups = 10
	// maxNamed bounds the resources that a rejection names.
	maxNamed = 8
)

// take starts to attribute responses to a push.
func (a *account) take(p *session.Push) {
	a.tally, a.since = p.Tally, p.Queued
}

// countSent records a response that is about to be sent.
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

// settle ends wait i with an outcome.
func (a *account) settle(i int, now time.Time, o pushes.Outcome) {
	w := a.waits[i]
	w.tally.Ended(now, o, w.again)
	a.waits = slices.Delete(a.waits, i, i+1)
}

// countAnswered ends the waits whose responses the client has all answered.
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

// countRejected records a rejection and the objects that the rejected resources are made of.
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
	about := blamed(v.Resources, message)
	r := pushes.Rejection{
		Time: now, Proxy: c.proxy.ID, Type: envoy.ShortType(v.TypeURL), Code: v.Code.String(), Message: shorten(message, 2<<10),
		Of: len(v.Resources), Resources: []string{},
	}
	for _, x := range about {
		r.Resources = append(r.Resources, x.Name)
	}
	s.o.Pushes.Reject(t, r, func() []pushes.Object { return s.sourcesOf(about) })
	c.countAnswered(now)
}

// blamed returns the resources that a rejection is about: the ones that its message names, or else all if they are few.
func blamed(list []*envoy.Resource, message string) []*envoy.Resource {
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

// mentions reports whether a message contains a name as a whole, not as a part of a longer name.
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
		if len(after) > 1 && (after[0] == '.' || after[0] == ':') { // the end of a sentence, or a part of the name
			after = after[1:]
		}
		if !inName(before) && before != '.' && (after == "" || !inName(after[0])) {
			return true
		}
		before, rest = rest[i], rest[i+1:]
	}
}

// sourcesOf returns the objects that resources are made of. It returns nil if clients cause too many look-ups.
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

// end settles all waits as lost when the stream ends.
func (a *account) end(now time.Time) {
	for len(a.waits) > 0 {
		a.settle(0, now, pushes.Lost)
	}
}
