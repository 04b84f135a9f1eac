package xds

import (
	"sync"

	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// standing is what streams have in common that are sent the same, but for what is a proxy's own. The zero standing is that of a stream that looks at each push itself.
type standing struct {
	cohort              any // Translator.Audience
	clusters, listeners bool
	endpoints, routes   *envoy.Names
}

// standing gives that of the stream. Gateways are few, and have others wait for them.
func (s *session) standing() standing {
	if s.ofObjects() || s.unjoined || s.proxy.Type == node.Router {
		return standing{}
	}
	if s.audienceOf != s.cohort {
		s.audience, s.audienceOf = s.translator.Audience(s.cohort), s.cohort
	}
	a := standing{cohort: s.audience}
	for _, w := range s.watches {
		named := !w.whole() && w.names != nil
		switch {
		case w.idle(), w.typeURL == envoy.VirtualHostType: // which follow the route configurations
		case w.typeURL == envoy.ClusterType && w.names == nil:
			a.clusters = true
		case w.typeURL == envoy.ListenerType && w.names == nil:
			a.listeners = true
		case w.typeURL == envoy.EndpointType && named:
			a.endpoints = w.names
		case w.typeURL == envoy.RouteType && named:
			a.routes = w.names
		default:
			return standing{}
		}
	}
	if a.cohort == nil {
		return standing{}
	}
	return a
}

// audience are the streams of one standing. Whether a snapshot has anything for them is found out once, and where it has not they sleep on. What is a proxy's own, its
// inbound half and who it is, changes only where Translator.NeedsReassign says so: of that each stream is told by itself.
type audience struct {
	server  *Server
	is      standing
	cohort  Cohort             // that of one of them
	members map[*conn]struct{} // server.mu's

	mu      sync.Mutex
	waiting *push
	looking bool // a goroutine is at it, which alone touches had

	had sets
}

// sets are what the outbound halves of an audience are made of.
type sets struct {
	clusters, listeners, routes *envoy.Set
	endpoints, near             *envoy.Set // near depend on where the proxies run
}

// offer has a push looked at.
func (a *audience) offer(p *push) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting = a.waiting.merge(p); !a.looking {
		a.looking = a.server.spawn("xds audience", a.look)
	}
}

func (a *audience) look() {
	s := a.server
	for {
		a.mu.Lock()
		p := a.waiting
		a.waiting, a.looking = nil, p != nil
		a.mu.Unlock()
		if p == nil {
			return
		}
		select {
		case s.slots <- struct{}{}:
		case <-s.closing:
			return
		}
		news := a.news(p)
		<-s.slots
		if news {
			s.tell(a, p)
		}
	}
}

// news tells whether a push has anything for the audience. Where that cannot be found out the streams are to see for themselves.
func (a *audience) news(p *push) bool {
	t, is, had := a.server.translator, a.is, a.had
	if err := safe.Do("translate for an audience", func() {
		if is.endpoints != nil {
			u, err := t.Subscribed(p.snapshot, a.cohort, envoy.EndpointType, is.endpoints)
			a.had.endpoints, a.had.near = u.Outbound, u.Inbound
			a.server.untranslated(envoy.EndpointType, err)
		}
		if !p.full {
			return
		}
		if is.clusters {
			a.had.clusters = t.Outbound(p.snapshot, a.cohort, envoy.ClusterType)
		}
		if is.listeners {
			a.had.listeners = t.Outbound(p.snapshot, a.cohort, envoy.ListenerType)
		}
		if is.routes != nil {
			u, err := t.Subscribed(p.snapshot, a.cohort, envoy.RouteType, is.routes)
			a.had.routes = u.Outbound
			a.server.untranslated(envoy.RouteType, err)
		}
	}); err != nil {
		a.had = sets{}
		return true
	}
	// Of several pushes in one a stream may have been told for itself, and have what the earlier ones brought.
	return a.had != had || p.first != p.snapshot.Revision
}

// untranslated counts and logs an error, if there is one, of which the streams will not hear any more.
func (s *Server) untranslated(typeURL string, err error) {
	if err != nil {
		s.metrics.internalErrors.Inc()
		s.logger.Error("translation failed: proxies keep what they have", "type", ShortType(typeURL), "err", err)
	}
}

// tell offers a push to an audience.
func (s *Server) tell(a *audience, p *push) {
	s.mu.Lock()
	defer s.mu.Unlock()
	newest := *p
	newest.snapshot = s.latest                     // a stream that was told of a later one meanwhile must not go back
	newest.full = p.full || p.snapshot != s.latest // whatever came since it is to see for itself: it may be of another audience when that has been looked at
	for c := range a.members {
		if c.told.from > p.first || p.snapshot.Revision > c.told.to {
			c.offer(&newest)
		}
	}
}

// span are the revisions of snapshots that follow each other.
type span struct{ from, to uint64 }

// add adds a revision that follows another. It gives true.
func (s *span) add(last, revision uint64) bool {
	if s.to != last {
		s.from = revision
	}
	s.to = revision
	return true
}

// attend has the stream belong to the audience that it is one of now.
func (c *conn) attend() {
	is := c.session.standing()
	if is == c.standing && c.cohort == c.session.cohort {
		return
	}
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.cohort = c.session.cohort; is == c.standing {
		return
	}
	s.dismiss(c)
	if s.latest.Revision > c.session.revision { // its audience may not have looked at that yet, and the other one may have
		c.offer(everything(s.latest))
	}
	if s.conns[c.id] != c || is == (standing{}) {
		return
	}
	c.standing = is
	a := s.audiences[is]
	if a == nil {
		a = &audience{server: s, is: is, cohort: c.cohort, members: map[*conn]struct{}{}}
		s.audiences[is] = a
	}
	a.members[c] = struct{}{}
}

// dismiss takes a stream from its audience. mu is held.
func (s *Server) dismiss(c *conn) {
	if a := s.audiences[c.standing]; a != nil {
		if delete(a.members, c); len(a.members) == 0 {
			delete(s.audiences, c.standing)
		}
	}
	c.standing = standing{}
}
