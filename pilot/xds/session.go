package xds

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
)

// observer is notified of what happens inside a session.
type observer interface {
	// panicked: a translation for one type failed; what was sent before stands.
	panicked(typeURL string, err error)
	// suppressed: a version that the client had rejected was not sent again.
	suppressed(typeURL string)
}

// session is the protocol of one stream. Requests and snapshots go in through stateOfTheWorld, incremental and adopt;
// next returns the responses. It has no clock, socket or goroutine, and is used by one goroutine at a time.
type session struct {
	translator  Translator
	observer    observer
	limits      *limits.Limits
	differences *differences
	interner    *nameInterner
	delta       bool
	profile     *profile
	divided     bool   // delta: the client takes virtual hosts by themselves
	prefix      string // of nonces

	proxy            *node.Proxy
	snapshot         *snapshot.Snapshot // nil while the stream is at rest: it may sleep through newer ones
	revision         uint64             // of the last one that everything was compared with
	cohort           Cohort
	shared, sharedOf Cohort // what Translator.Shared returned, and for which cohort
	// departing: the workload has gone from the snapshot. Until depart the proxy keeps the inbound half of known, its
	// cohort before: callers send it requests until they learn that it is no endpoint any more.
	departing bool
	known     Cohort // nil: the workload was never known, or has departed for good

	// joining the newest snapshot failed: the one before stands, and the next is joined whatever changed
	joinFailed bool

	// changedClusters are the clusters that a resuming client was sent before it asked for endpoints: the assignments
	// that it names are out of date, though a cluster may have changed back meanwhile. nil unless it resumes.
	changedClusters map[string]struct{}

	unrequested []string // new clusters, whose assignments are to follow

	// resuming: the client named clusters of an earlier stream, and what it asks for may still refer to them. None is
	// removed before quiet.
	resuming bool
	resumed  bool // the client named versions of an earlier stream

	// withoutHosts are the route configurations that the client was sent without their virtual hosts: it has none of
	// those.
	withoutHosts map[string]struct{}
	// generations are how often the client was sent a route configuration before the last time; hasGenerations: one is
	// not zero.
	generations     map[string]uint32
	hasGenerations  bool
	firstGeneration uint32 // differs from those of earlier streams

	tombstones int // that the client was sent

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

// find returns the watch of a type, or nil.
func (s *session) find(typeURL string) *watch {
	for _, w := range s.watches {
		if w.kind.URL == typeURL {
			return w
		}
	}
	return nil
}

func (s *session) open(typeURL string) *watch {
	w := &watch{kind: envoy.TypeOf(typeURL)}
	w.complete = w.kind.Complete || s.profile.whole
	s.watches = append(s.watches, w)
	slices.SortFunc(s.watches, func(a, b *watch) int {
		return cmp.Or(cmp.Compare(a.kind.Addition, b.kind.Addition), strings.Compare(a.kind.URL, b.kind.URL))
	})
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
	// there is no whole of it: that would be nothing, and hide what the client names beside it
	if envoy.TypeOf(r.typeURL).Named && !s.profile.whole {
		r.names.star, r.unsubscribed.star = false, false
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

// adopt takes a newer snapshot. To be called when next returns nil, so that a pass belongs to one snapshot.
func (s *session) adopt(p *push) {
	if p.full || s.joinFailed || p.objects && s.profile.whole || p.concerns(s.proxy) {
		if s.joinFailed = !s.rejoin(p); s.joinFailed {
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
	for _, w := range s.watches {
		w.compare = w.compare || w.kind.Live && !w.idle()
	}
}

func (s *session) take(snap *snapshot.Snapshot) { s.snapshot, s.revision = snap, snap.Revision }

// pending reports whether next may return a response.
func (s *session) pending() bool {
	return slices.ContainsFunc(s.watches, func(w *watch) bool {
		return w.pending() || s.removable(w) || w.kind.URL == envoy.EndpointType && len(s.unrequested) > 0
	})
}

// unacknowledged returns the bytes of the responses that the client has not acknowledged.
func (s *session) unacknowledged() int {
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
	case len(w.pendingRemoval) == 0:
		return false
	case w.kind.URL == envoy.ClusterType:
		return !s.resuming
	case w.kind.URL == envoy.VirtualHostType:
		return len(w.sent) == 0 && len(w.bisection) == 0 // what takes their place was taken
	}
	return true
}

// quiet ends resuming: the client has asked for all that it had on its earlier stream.
func (s *session) quiet() { s.resuming = false }

// next returns the next response of the pass, which counts as sent, or nil when the client has everything.
func (s *session) next() *Response {
	for _, w := range s.watches {
		for w.pending() {
			if r := s.additions(w); r != nil {
				return r
			}
		}
		if w.kind.URL == envoy.EndpointType && len(s.unrequested) > 0 {
			if r := s.early(w); r != nil {
				return r
			}
		}
	}
	for i := range envoy.Removals {
		for _, w := range s.watches {
			if w.kind.Removal == i && s.removable(w) {
				return s.removals(w)
			}
		}
	}
	return nil
}

func (s *session) additions(w *watch) *Response {
	switch {
	case w.kind.URL == envoy.VirtualHostType && !s.divided && !s.profile.whole:
		// Envoy would fall back from a whole route configuration to VHDS
		w.compare, w.answer, w.resend, w.bisection, w.pendingRemoval = false, false, nil, nil, nil
		return nil
	case w.idle():
		w.compare, w.answer, w.resend, w.bisection = false, false, nil, nil
		if w.hosts != nil {
			s.dropHosts(w)
		}
		return nil
	case w.whole() && !s.delta:
		return s.wholeState(w)
	case !w.compare && !w.answer && len(w.resend) == 0 && len(w.bisection) > 0:
		return s.part(w)
	case !w.whole():
		return s.byName(w)
	}
	return s.wholeDelta(w)
}

// target returns what the client should have of a type that is sent as a whole. false: what it has stands.
func (s *session) target(w *watch) (envoy.Union, bool) {
	var u envoy.Union
	if w.kind.URL == envoy.VirtualHostType && !s.profile.whole {
		routes := s.find(envoy.RouteType)
		if routes == nil {
			return envoy.Union{}, false
		}
		u.Outbound = routes.hosts
	} else if all, ok := s.get(w.kind, nil); ok {
		u = all
	} else {
		return envoy.Union{}, false
	}
	if !w.wildcard {
		u = subset(u, w.names)
	}
	return u, true
}

// get returns what the client should have of a type: all of it, or the resources of some names. It returns false if
// the translation failed; names that failed alone are missing.
func (s *session) get(kind *envoy.Type, names *envoy.Names) (envoy.Union, bool) {
	var u envoy.Union
	var failed error
	err := safe.Do("translate "+kind.Short, func() { u, failed = s.translator.Get(s.snapshot, s.cohort, kind.URL, names) })
	if e := cmp.Or(err, failed); e != nil {
		s.observer.panicked(kind.URL, e)
	}
	return u, err == nil
}

// rejoin is join, unless nothing that came since can have changed the proxy's cohort.
func (s *session) rejoin(p *push) bool {
	moves := true
	if !s.joinFailed && !p.concerns(s.proxy) {
		// join reports what is wrong
		_ = safe.Do("translate join", func() { moves = s.translator.NeedsReassign(p.snapshot, s.proxy, s.cohort, s.revision) })
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
