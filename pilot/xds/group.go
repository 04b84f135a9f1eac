package xds

import (
	"sync"

	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// groupKey is what streams have in common that are sent the same, except for what is a proxy's own. A stream with the
// zero groupKey checks each push itself.
type groupKey struct {
	cohort              any // Translator.Audience
	clusters, listeners bool
	endpoints, routes   *envoy.Names
}

// groupKey returns the stream's. Gateways check each push themselves: they are few, and other proxies depend on them.
func (s *session) groupKey() groupKey {
	if s.ofObjects() || s.joinFailed || s.proxy.Type == node.Router {
		return groupKey{}
	}
	if s.sharedOf != s.cohort {
		s.shared, s.sharedOf = s.translator.Shared(s.cohort), s.cohort
	}
	k := groupKey{cohort: s.shared}
	for _, w := range s.watches {
		named := !w.whole() && w.names != nil
		switch {
		case w.idle(), w.kind.URL == envoy.VirtualHostType: // which follow the route configurations
		case w.kind.URL == envoy.ClusterType && w.names == nil:
			k.clusters = true
		case w.kind.URL == envoy.ListenerType && w.names == nil:
			k.listeners = true
		case w.kind.URL == envoy.EndpointType && named:
			k.endpoints = w.names
		case w.kind.URL == envoy.RouteType && named:
			k.routes = w.names
		default:
			return groupKey{}
		}
	}
	if k.cohort == nil {
		return groupKey{}
	}
	return k
}

// subscriberGroup is the streams with one groupKey. Whether a snapshot has anything for them is checked once; if not,
// they sleep. What is a proxy's own, its inbound half and its cohort, changes only if Translator.NeedsReassign reports
// so: then the stream is notified by itself.
type subscriberGroup struct {
	server  *Server
	key     groupKey
	cohort  Cohort             // that of one of them
	members map[*conn]struct{} // server.mu's

	mu       sync.Mutex
	waiting  *push
	checking bool // a goroutine is at it, which alone touches had

	had groupSets
}

// groupSets are the outbound halves of what a group's streams were sent.
type groupSets struct {
	clusters, listeners, routes *envoy.Set
	endpoints, near             *envoy.Set // near: those that depend on where the proxies run
}

// offer has a push checked.
func (a *subscriberGroup) offer(p *push) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting = a.waiting.merge(p); !a.checking {
		a.checking = a.server.spawn("xds subscriber group", a.check)
	}
}

func (a *subscriberGroup) check() {
	s := a.server
	for {
		a.mu.Lock()
		p := a.waiting
		a.waiting, a.checking = nil, p != nil
		a.mu.Unlock()
		if p == nil {
			return
		}
		select {
		case s.slots <- struct{}{}:
		case <-s.closing:
			return
		}
		news := a.changed(p)
		<-s.slots
		if news {
			s.notify(a, p)
		}
	}
}

// changed reports whether a push has anything for the group. If that cannot be determined, the streams check for
// themselves.
func (a *subscriberGroup) changed(p *push) bool {
	t, key, had := a.server.translator, a.key, a.had
	if err := safe.Do("translate for a subscriber group", func() {
		if key.endpoints != nil {
			u, err := t.Subscribed(p.snapshot, a.cohort, envoy.EndpointType, key.endpoints)
			a.had.endpoints, a.had.near = u.Outbound, u.Inbound
			a.server.translationFailed(envoy.EndpointType, err)
		}
		if !p.full {
			return
		}
		if key.clusters {
			a.had.clusters = t.Outbound(p.snapshot, a.cohort, envoy.ClusterType)
		}
		if key.listeners {
			a.had.listeners = t.Outbound(p.snapshot, a.cohort, envoy.ListenerType)
		}
		if key.routes != nil {
			u, err := t.Subscribed(p.snapshot, a.cohort, envoy.RouteType, key.routes)
			a.had.routes = u.Outbound
			a.server.translationFailed(envoy.RouteType, err)
		}
	}); err != nil {
		a.had = groupSets{}
		return true
	}
	// Of several pushes in one, a stream may have been notified of the earlier ones alone, and have what they brought.
	return a.had != had || p.first != p.snapshot.Revision
}

// translationFailed counts and logs an error, if there is one. The streams will not report it.
func (s *Server) translationFailed(typeURL string, err error) {
	if err != nil {
		s.metrics.internalErrors.Inc()
		s.logger.Error("translation failed: proxies keep what they have", "type", envoy.ShortType(typeURL), "err", err)
	}
}

// notify offers a push to a group.
func (s *Server) notify(a *subscriberGroup, p *push) {
	s.mu.Lock()
	defer s.mu.Unlock()
	newest := *p
	newest.snapshot = s.latest // a stream that was offered a later one meanwhile must not go back
	// the stream checks what came since for itself: its group may be a different one by then
	newest.full = p.full || p.snapshot != s.latest
	for c := range a.members {
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
	key := c.session.groupKey()
	if key == c.groupKey && c.cohort == c.session.cohort {
		return
	}
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.cohort = c.session.cohort; key == c.groupKey {
		return
	}
	s.leaveGroup(c)
	if s.latest.Revision > c.session.revision { // its old group may not have checked that yet, and the new one may have
		c.offer(everything(s.latest))
	}
	if s.conns[c.id] != c || key == (groupKey{}) {
		return
	}
	c.groupKey = key
	a := s.groups[key]
	if a == nil {
		a = &subscriberGroup{server: s, key: key, cohort: c.cohort, members: map[*conn]struct{}{}}
		s.groups[key] = a
	}
	a.members[c] = struct{}{}
}

// leaveGroup takes a stream from its group. mu is held.
func (s *Server) leaveGroup(c *conn) {
	if a := s.groups[c.groupKey]; a != nil {
		if delete(a.members, c); len(a.members) == 0 {
			delete(s.groups, c.groupKey)
		}
	}
	c.groupKey = groupKey{}
}
