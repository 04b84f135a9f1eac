package xds

import (
	"slices"
	"sync"

	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/xds/session"
)

// subscriberGroup is the streams with one session.Key. Whether a snapshot has anything for them is checked once; if
// not, they sleep. What is a proxy's own, its inbound half and its cohort, changes only if Translator.NeedsReassign
// reports so: then the stream is notified by itself.
type subscriberGroup struct {
	server  *Server
	key     session.Key
	members map[*conn]struct{} // server.mu's

	mu       sync.Mutex
	waiting  *session.Push
	checking bool // a goroutine is at it, which alone touches last

	last [session.MaxTypes]envoy.Union // of each subscription, at the last push

	// turns are the turns of the identity or address that all members share; nil if they do not share one.
	// Guarded by server.mu.
	turns chan struct{}
}

// offer has a push checked, unless it has nothing for the group's types.
func (g *subscriberGroup) offer(p *session.Push) {
	if p.ReassignsOnly || !slices.ContainsFunc(g.key.Subscriptions[:], func(x session.Subscription) bool {
		return x.TypeURL != "" && p.Changes(envoy.TypeOf(x.TypeURL))
	}) {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.waiting = g.waiting.Merge(p); !g.checking {
		g.checking = g.server.spawn("xds subscriber group", g.check)
	}
}

func (g *subscriberGroup) check() {
	s := g.server
	for {
		g.mu.Lock()
		p := g.waiting
		g.waiting, g.checking = nil, p != nil
		g.mu.Unlock()
		if p == nil {
			return
		}
		s.mu.Lock()
		turns := g.turns
		s.mu.Unlock()
		if turns != nil { // an identity with many groups waits with no more of them than with streams: see takeTurn
			select {
			case turns <- struct{}{}:
			case <-s.closing:
				return
			}
		}
		select {
		case s.slots <- struct{}{}:
		case <-s.closing:
			return
		}
		news := g.changed(p)
		<-s.slots
		if turns != nil {
			<-turns
		}
		if news {
			s.notify(g, p)
		}
	}
}

// changed reports whether a push has anything for the group. If that cannot be determined, the streams check for
// themselves.
func (g *subscriberGroup) changed(p *session.Push) bool {
	before := g.last
	if err := safe.Do("translate for a subscriber group", func() {
		for i, x := range g.key.Subscriptions {
			if x.TypeURL == "" || !p.Changes(envoy.TypeOf(x.TypeURL)) {
				continue
			}
			u, err := g.server.o.Translator.Get(p.Snapshot, g.key.Cohort, x.TypeURL, x.Names)
			g.last[i] = u
			g.server.translationFailed(x.TypeURL, err)
		}
	}); err != nil {
		g.last = [session.MaxTypes]envoy.Union{}
		return true
	}
	// Of several pushes in one, a stream may have been notified of the earlier ones alone, and have what they brought.
	return g.last != before || p.First != p.Snapshot.Revision
}

// translationFailed counts and logs an error, if there is one. The streams will not report it.
func (s *Server) translationFailed(typeURL string, err error) {
	if err != nil {
		s.metrics.internalErrors.Inc()
		s.o.Logger.Error("translation failed: proxies keep what they have", "type", envoy.ShortType(typeURL), "err", err)
	}
}

// notify offers a push to a group.
func (s *Server) notify(g *subscriberGroup, p *session.Push) {
	s.mu.Lock()
	defer s.mu.Unlock()
	newest := *p
	newest.Snapshot = s.latest // a stream that was offered a later one meanwhile must not go back
	// the stream checks what came since for itself: its group may be a different one by then
	newest.Full = p.Full || p.Snapshot != s.latest
	for c := range g.members {
		if c.notified.from > p.First || p.Snapshot.Revision > c.notified.to {
			c.offer(&newest)
		}
	}
}

// span is a range of consecutive revisions.
type span struct{ from, to uint64 }

// add appends a revision, or begins a new range where it does not follow.
func (s *span) add(last, revision uint64) {
	if s.to != last {
		s.from = revision
	}
	s.to = revision
}

// joinGroup moves the stream to the group that it belongs to now.
func (c *conn) joinGroup() {
	key, ok := c.session.Key()
	same := !ok && c.group == nil || ok && c.group != nil && c.group.key == key
	if same && c.cohort == c.session.Cohort() {
		return
	}
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	last := c.cohort
	c.cohort = c.session.Cohort()
	c.cohorts.move(last, c.cohort)
	if c.tenant.move(last, c.cohort); same {
		return
	}
	s.leaveGroup(c)
	// its old group may not have checked that yet, and the new one may have
	if s.latest.Revision > c.session.Revision() {
		c.offer(s.fullPush())
	}
	if s.conns[c.id] != c || !ok {
		return
	}
	g := s.groups[key]
	if g == nil {
		g = &subscriberGroup{server: s, key: key, members: map[*conn]struct{}{}, turns: c.turns}
		s.groups[key] = g
	}
	if g.turns != c.turns {
		g.turns = nil
	}
	g.members[c] = struct{}{}
	c.group = g
}

// leaveGroup takes a stream from its group. mu is held.
func (s *Server) leaveGroup(c *conn) {
	g := c.group
	if g == nil {
		return
	}
	if delete(g.members, c); len(g.members) == 0 {
		delete(s.groups, g.key)
	}
	c.group = nil
}
