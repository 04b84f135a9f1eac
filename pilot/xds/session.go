package xds

import (
	"cmp"
	"fmt"
	"slices"

	"google.golang.org/grpc/codes"

	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
)

// observer is told what happens inside a session.
type observer interface {
	// panicked: a translation for one type failed; what was sent before stands.
	panicked(typeURL string, err error)
	// suppressed: a version that the client had rejected was not sent again.
	suppressed(typeURL string)
}

// session is the protocol of one stream. Requests and snapshots go in through stateOfTheWorld, incremental and adopt; next gives the responses. It knows no
// clock, socket or goroutine, and is used by one goroutine at a time.
type session struct {
	translator  Translator
	observer    observer
	limits      *limits.Limits
	differences *differences
	lists       *lists
	delta       bool
	divided     bool   // delta: the client takes virtual hosts by themselves
	prefix      string // of nonces

	proxy                *node.Proxy
	snapshot             *snapshot.Snapshot // nil while the stream is at rest: it may sleep through newer ones
	revision             uint64             // of the last one that everything was compared with
	cohort               Cohort
	audience, audienceOf any // what Translator.Audience gives, and for what
	// departing: the workload has gone from the snapshot. Until depart the proxy keeps the inbound half of known, its cohort before: others send it requests until
	// they too have learned that it is no endpoint any more.
	departing bool
	known     Cohort // nil: the workload was never known, or has departed for good

	unjoined bool // joining the newest snapshot failed: the one before stands, and the next is joined whatever changed

	// changed are the clusters that a resuming client was sent before it asked for endpoints: what it brings of their assignments is out of date, though a
	// cluster may have changed back meanwhile. nil unless it resumes.
	changed map[string]struct{}

	unasked []string // clusters that the client was sent for the first time, whose assignments are to follow

	// resuming: the client brought clusters from an earlier stream, and what it asks for on this one may still name them. None is removed before rest.
	resuming bool
	resumed  bool // the client brought something from an earlier stream

	// renewed are the route configurations that the client was sent without their virtual hosts: of those it has none, whatever it had before.
	renewed map[string]struct{}
	// repeats are how often the client was sent a route configuration before the last time, and repeated tells that one was.
	repeats  map[string]uint32
	repeated bool
	unique   uint32 // no earlier stream had it

	vacancies int // virtual hosts that were removed, of which Envoy keeps something

	watches []*watch // in the order of sending
	nonces  uint64
	names   int // subscribed to, of all types
}

// Bounds that nobody has a reason to tune.
const (
	maxTypes   = 64  // on one stream; Envoy has a dozen
	maxTypeURL = 256 // bytes
)

// verdictKind is what a request says of the responses before it.
type verdictKind int

const (
	subscribed verdictKind = iota // nothing: it only subscribes
	acked
	rejected
	expired // it answers a response that was followed by another: ignored
)

// verdict is the outcome of one request.
type verdict struct {
	typeURL string
	kind    verdictKind
	code    codes.Code // of a rejection
	message string     // of a rejection
}

// find gives the watch of a type, or nil.
func (s *session) find(typeURL string) *watch {
	for _, w := range s.watches {
		if w.typeURL == typeURL {
			return w
		}
	}
	return nil
}

func (s *session) open(typeURL string) *watch {
	w := &watch{typeURL: typeURL, complete: kindOf(typeURL).complete || s.ofObjects()}
	s.watches = append(s.watches, w)
	slices.SortStableFunc(s.watches, func(a, b *watch) int { return cmp.Compare(kindOf(a.typeURL).rank, kindOf(b.typeURL).rank) })
	return w
}

// check holds a request to the limits. The error is the client's fault.
func (s *session) check(r *request) error {
	if r.typeURL == "" || len(r.typeURL) > maxTypeURL {
		return fmt.Errorf("type_url must have 1 to %d bytes, not %d", maxTypeURL, len(r.typeURL))
	}
	if len(s.watches) >= maxTypes && s.find(r.typeURL) == nil {
		return fmt.Errorf("more than %d types on one stream", maxTypes)
	}
	if kindOf(r.typeURL).named && !s.ofObjects() { // there is no whole of it: that would be nothing, and hide what the client names beside it
		r.names.star, r.leaves.star = false, false
	}
	return r.fault
}

// want sets the names that the client wants of a type.
func (s *session) want(w *watch, names *envoy.Names) error {
	total := s.names - w.names.Len() + names.Len()
	if total > s.limits.NamesPerStream {
		return fmt.Errorf("more than %d resource names on one stream", s.limits.NamesPerStream)
	}
	s.names, w.names = total, names
	return nil
}

// start joins the session to the first snapshot. false: it cannot be served.
func (s *session) start(snap *snapshot.Snapshot) bool {
	s.take(snap)
	return s.join(snap)
}

// adopt takes a newer snapshot. To be called when next gives nothing, so that a pass belongs to one state of the world.
func (s *session) adopt(p *push) {
	if p.full || s.unjoined || p.objects && s.ofObjects() || p.concerns(s.proxy) {
		if s.unjoined = !s.rejoin(p); s.unjoined {
			if s.snapshot == nil { // what is asked for has to come from somewhere
				s.take(p.snapshot)
			}
			return
		}
		s.take(p.snapshot)
		for _, w := range s.watches {
			w.compare = w.compare || !w.idle()
		}
		return
	}
	s.take(p.snapshot)
	if w := s.find(envoy.EndpointType); w != nil {
		w.compare = w.compare || !w.idle()
	}
}

func (s *session) take(snap *snapshot.Snapshot) { s.snapshot, s.revision = snap, snap.Revision }

// pending tells that next may have something.
func (s *session) pending() bool {
	return slices.ContainsFunc(s.watches, func(w *watch) bool {
		return w.pending() || s.removable(w) || w.typeURL == envoy.EndpointType && len(s.unasked) > 0
	})
}

// unread is the size of the responses that the client has not said it has read, in bytes.
func (s *session) unread() int {
	n := 0
	for _, w := range s.watches {
		for _, d := range w.sent {
			n += d.size
		}
	}
	return n
}

func (s *session) removable(w *watch) bool {
	switch {
	case len(w.gone) == 0:
		return false
	case w.typeURL == envoy.ClusterType:
		return !s.resuming
	case w.typeURL == envoy.VirtualHostType:
		return len(w.sent) == 0 && len(w.parts) == 0 // what takes their place was taken
	}
	return true
}

// rest says that the client has asked for all that it had on its earlier stream: it has been quiet for a while.
func (s *session) rest() { s.resuming = false }

// next gives the next response of the pass, or nil when the client has everything. What it gives counts as sent.
func (s *session) next() *Response {
	for _, w := range s.watches {
		for w.pending() {
			if r := s.additions(w); r != nil {
				return r
			}
		}
		if w.typeURL == envoy.EndpointType && len(s.unasked) > 0 {
			if r := s.early(w); r != nil {
				return r
			}
		}
	}
	for i := range 3 {
		for _, w := range s.watches {
			if kindOf(w.typeURL).removal == i && s.removable(w) {
				return s.removals(w)
			}
		}
	}
	return nil
}

func (s *session) additions(w *watch) *Response {
	switch {
	case w.typeURL == envoy.VirtualHostType && !s.divided && !s.ofObjects(): // Envoy would go back from a whole route configuration to what it is told of its virtual hosts
		w.compare, w.answer, w.again, w.parts, w.gone = false, false, nil, nil, nil
		return nil
	case w.idle():
		w.compare, w.answer, w.again, w.parts = false, false, nil, nil
		if w.hosts != nil {
			s.bare(w)
		}
		return nil
	case w.whole() && !s.delta:
		return s.wholeState(w)
	case !w.compare && !w.answer && len(w.again) == 0 && len(w.parts) > 0:
		return s.part(w)
	case !w.whole():
		return s.byName(w)
	}
	return s.wholeDelta(w)
}

// target is what the client should have of a type that is sent as a whole. false: what it has stands.
func (s *session) target(w *watch) (envoy.Union, bool) {
	var u envoy.Union
	if w.typeURL == envoy.VirtualHostType && !s.ofObjects() {
		routes := s.find(envoy.RouteType)
		if routes == nil {
			return envoy.Union{}, false
		}
		u.Outbound = routes.hosts
	} else if err := safe.Do("translate "+ShortType(w.typeURL), func() { u = s.translator.Wildcard(s.snapshot, s.cohort, w.typeURL) }); err != nil {
		s.observer.panicked(w.typeURL, err)
		return envoy.Union{}, false
	}
	if !w.wildcard {
		u = subset(u, w.names)
	}
	return u, true
}

// subscribed is what the client should have of a type that it asks for by name, of those names.
func (s *session) subscribed(typeURL string, names *envoy.Names) (envoy.Union, bool) {
	var u envoy.Union
	var failed error
	err := safe.Do("translate "+ShortType(typeURL), func() { u, failed = s.translator.Subscribed(s.snapshot, s.cohort, typeURL, names) })
	if e := cmp.Or(err, failed); e != nil {
		s.observer.panicked(typeURL, e)
	}
	return u, err == nil
}

// rejoin is join, unless nothing that came since can have changed the proxy's cohort.
func (s *session) rejoin(p *push) bool {
	moves := true
	if !s.unjoined && !p.concerns(s.proxy) {
		_ = safe.Do("translate join", func() { moves = s.translator.NeedsReassign(p.snapshot, s.proxy, s.cohort, s.revision) }) // join tells what is wrong
	}
	return !moves || s.join(p.snapshot)
}

func (s *session) join(snap *snapshot.Snapshot) bool {
	err := safe.Do("translate join", func() {
		s.cohort = s.translator.ResolveCohort(snap, s.proxy)
		s.departing = false
		if s.known != nil {
			s.cohort, s.departing = s.translator.Departed(s.cohort, s.known)
		}
		if !s.departing {
			s.known = s.cohort
		}
	})
	if err != nil {
		s.observer.panicked("", err)
	}
	return err == nil
}

// depart takes the inbound half of a workload that has gone from the proxy, with the next push.
func (s *session) depart() { s.departing, s.known = false, nil }
