package xds

import (
	"slices"
	"sync"

	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/xds/session"
)

// subscriberGroup is the set of streams with one session.Key. It checks each snapshot once, and wakes its streams only
// if the snapshot changes something for them. A proxy's inbound configuration and cohort change only if
// Translator.NeedsReassign reports so, and then the stream is notified directly.
type subscriberGroup struct {
	server  *Server
	key     session.Key
	members map[*conn]struct{} // guarded by server.mu

	mu          sync.Mutex
	pendingPush *session.Push
	current     *session.Push // being checked; nil once the members were told
	checking    bool          // the goroutine of check runs; it owns last

	last [session.MaxTypes]envoy.Union // by subscription, as of the last push

	// turns are the turns of the identity or address of all members, or nil if the members have different ones.
	// Guarded by server.mu.
	turns chan struct{}
}

// offer schedules a check of a push, unless it changes none of the group's types.
func (g *subscriberGroup) offer(p *session.Push) {
	if p.ReassignsOnly || !slices.ContainsFunc(g.key.Subscriptions[:], func(x session.Subscription) bool {
		return x.TypeURL != "" && p.Changes(envoy.TypeOf(x.TypeURL))
	}) {
		return
	}
	g.mu.Lock()
	g.pendingPush = g.pendingPush.Merge(p)
	idle := !g.checking
	g.checking = true
	g.mu.Unlock()
	if idle && !g.server.spawn("xds subscriber group", g.check) {
		g.mu.Lock()
		g.checking = false
		g.mu.Unlock()
	}
}

func (g *subscriberGroup) check() {
	safe.GrowStack()
	s := g.server
	for {
		g.mu.Lock()
		p := g.pendingPush
		g.pendingPush, g.current, g.checking = nil, p, p != nil
		g.mu.Unlock()
		if p == nil {
			return
		}
		s.mu.Lock()
		turns := g.turns
		s.mu.Unlock()
		if turns != nil { // bounds the waiting groups of one identity: see takeTurn
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
		same, news := g.compare(p)
		<-s.slots
		if turns != nil {
			<-turns
		}
		if news {
			s.notify(g, p, same)
		}
	}
}

// compare reports whether a push changes something for the group, and which types it leaves the same. If the
// translation fails, the streams check for themselves.
func (g *subscriberGroup) compare(p *session.Push) (same session.Types, news bool) {
	before := g.last
	if err := safe.Do("translate for a subscriber group", func() {
		for i, x := range g.key.Subscriptions {
			if x.TypeURL == "" || !p.Changes(envoy.TypeOf(x.TypeURL)) {
				continue
			}
			u, err := g.server.o.Translator.Get(p.Snapshot, g.key.Cohort, x.TypeURL, x.Names)
			if g.last[i] = u; err == nil && u == before[i] {
				same = same.With(envoy.TypeOf(x.TypeURL))
			}
			g.server.translationFailed(x.TypeURL, err)
		}
	}); err != nil {
		g.last = [session.MaxTypes]envoy.Union{}
		return 0, true
	}
	// If pushes were merged, a stream may have been notified of the earlier ones only, and may have their resources.
	if p.First != p.Snapshot.Revision {
		return 0, true
	}
	return same, g.last != before
}

// translationFailed counts and logs a translation error. The streams do not report it.
func (s *Server) translationFailed(typeURL string, err error) {
	if err != nil {
		s.metrics.internalErrors.Inc()
		s.o.Logger.Error("failed to translate resources: proxies keep their last ones", "type", envoy.ShortType(typeURL), "err", err)
	}
}

// notify offers a push to the members of a group, whose resources of some types it leaves the same.
func (s *Server) notify(g *subscriberGroup, p *session.Push, same session.Types) {
	s.mu.Lock()
	defer s.mu.Unlock()
	newest := *p
	newest.Same = same
	newest.Snapshot = s.latest // a stream that was offered a later one must not go back
	// The stream compares newer snapshots itself, because it may be in a different group by then.
	if p.Snapshot != s.latest {
		newest.Full, newest.Same = true, 0
	}
	for c := range g.members {
		if c.notified.from > p.First || p.Snapshot.Revision > c.notified.to {
			c.offer(&newest)
		}
	}
}

// span is a range of consecutive revisions.
type span struct{ from, to uint64 }

// add appends a revision, or begins a new range if the revision does not follow.
func (s *span) add(last, revision uint64) {
	if s.to != last {
		s.from = revision
	}
	s.to = revision
}

// joinGroup moves the stream to the group of its current key.
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
	old := c.group
	s.leaveGroup(c)
	// The old group may not have checked the latest snapshot yet, and the new group may already have done so.
	if s.latest.Revision > c.session.Revision() {
		p := s.fullPush()
		p.First = s.firstUnchecked(old, p.First)
		// The old group does not know what snapshots changed for another cohort, or for names that were requested in
		// the middle of a pass.
		if last != c.cohort || c.session.Snapshot() != nil {
			p.First = c.session.Revision() + 1
		}
		c.offer(p)
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

// firstUnchecked returns the first revision that a group, which may be nil, has not checked, at most most. The caller
// holds mu.
func (s *Server) firstUnchecked(g *subscriberGroup, most uint64) uint64 {
	most = min(most, s.offered.Load()+1)
	if g != nil {
		if from := g.unchecked().from; from != 0 {
			most = min(most, from)
		}
	}
	return most
}

// leaveGroup removes a stream from its group. The caller holds mu.
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
