package xds

import (
	"sync"

	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// subscription is a type that a stream subscribes to: some names, or all that there is.
type subscription struct {
	typeURL string
	live    bool         // it changes with endpoints alone
	names   *envoy.Names // nil: all
}

// maxGroupTypes bounds the types of a subscriber group. A stream with more checks each push itself.
const maxGroupTypes = 12

// groupKey is what streams have in common that are sent the same, except for what is a proxy's own.
type groupKey struct {
	cohort        Cohort                      // Translator.Shared
	subscriptions [maxGroupTypes]subscription // in the order of types; the rest is zero
}

// groupKey returns the key of the stream's group. It returns false if the stream is to check each push itself.
func (s *session) groupKey() (groupKey, bool) {
	var k groupKey
	if !s.profile.grouped || s.joinFailed {
		return k, false
	}
	if s.sharedOf != s.cohort {
		s.shared, s.sharedOf = s.translator.Shared(s.cohort), s.cohort
	}
	k.cohort = s.shared
	n := 0
	for _, w := range s.watches {
		if w.idle() || w.kind.URL == envoy.VirtualHostType { // virtual hosts follow the route configurations
			continue
		}
		if n == maxGroupTypes {
			return k, false
		}
		k.subscriptions[n] = subscription{typeURL: w.kind.URL, live: w.kind.Live}
		if !w.whole() {
			k.subscriptions[n].names = w.names
		}
		n++
	}
	return k, k.cohort != nil
}

// subscriberGroup is the streams with one groupKey. Whether a snapshot has anything for them is checked once; if not,
// they sleep. What is a proxy's own, its inbound half and its cohort, changes only if Translator.NeedsReassign reports
// so: then the stream is notified by itself.
type subscriberGroup struct {
	server  *Server
	key     groupKey
	members map[*conn]struct{} // server.mu's

	mu       sync.Mutex
	waiting  *push
	checking bool // a goroutine is at it, which alone touches last

	last [maxGroupTypes]envoy.Union // of each subscription, at the last push
}

// offer has a push checked.
func (g *subscriberGroup) offer(p *push) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.waiting = g.waiting.merge(p); !g.checking {
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
		select {
		case s.slots <- struct{}{}:
		case <-s.closing:
			return
		}
		news := g.changed(p)
		<-s.slots
		if news {
			s.notify(g, p)
		}
	}
}

// changed reports whether a push has anything for the group. If that cannot be determined, the streams check for
// themselves.
func (g *subscriberGroup) changed(p *push) bool {
	before := g.last
	if err := safe.Do("translate for a subscriber group", func() {
		for i, x := range g.key.subscriptions {
			if x.typeURL == "" || !p.full && !x.live {
				continue
			}
			u, err := g.server.translator.Get(p.snapshot, g.key.cohort, x.typeURL, x.names)
			g.last[i] = u
			g.server.translationFailed(x.typeURL, err)
		}
	}); err != nil {
		g.last = [maxGroupTypes]envoy.Union{}
		return true
	}
	// Of several pushes in one, a stream may have been notified of the earlier ones alone, and have what they brought.
	return g.last != before || p.first != p.snapshot.Revision
}

// translationFailed counts and logs an error, if there is one. The streams will not report it.
func (s *Server) translationFailed(typeURL string, err error) {
	if err != nil {
		s.metrics.internalErrors.Inc()
		s.logger.Error("translation failed: proxies keep what they have", "type", envoy.ShortType(typeURL), "err", err)
	}
}

// notify offers a push to a group.
func (s *Server) notify(g *subscriberGroup, p *push) {
	s.mu.Lock()
	defer s.mu.Unlock()
	newest := *p
	newest.snapshot = s.latest // a stream that was offered a later one meanwhile must not go back
	// the stream checks what came since for itself: its group may be a different one by then
	newest.full = p.full || p.snapshot != s.latest
	for c := range g.members {
		if c.notified.from > p.first || p.snapshot.Revision > c.notified.to {
			c.offer(&newest)
		}
	}
}

// span is a range of consecutive revisions.
type span struct{ from, to uint64 }

// add appends a revision, or begins a new range where it does not follow. It returns true.
func (s *span) add(last, revision uint64) bool {
	if s.to != last {
		s.from = revision
	}
	s.to = revision
	return true
}

// joinGroup moves the stream to the group that it belongs to now.
func (c *conn) joinGroup() {
	key, ok := c.session.groupKey()
	same := !ok && c.group == nil || ok && c.group != nil && c.group.key == key
	if same && c.cohort == c.session.cohort {
		return
	}
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.cohort = c.session.cohort; same {
		return
	}
	s.leaveGroup(c)
	if s.latest.Revision > c.session.revision { // its old group may not have checked that yet, and the new one may have
		c.offer(everything(s.latest))
	}
	if s.conns[c.id] != c || !ok {
		return
	}
	g := s.groups[key]
	if g == nil {
		g = &subscriberGroup{server: s, key: key, members: map[*conn]struct{}{}}
		s.groups[key] = g
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
