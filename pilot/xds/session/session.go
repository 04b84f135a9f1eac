package session

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/pilot/xds/diff"
	"github.com/istiod-lite/istiod-lite/pilot/xds/wire"
)

// Observer is notified of what happens inside a session.
type Observer interface {
	// Panicked: a translation for one type failed; what was sent before stands.
	Panicked(typeURL string, err error)
	// Suppressed: a version that the client had rejected was not sent again.
	Suppressed(typeURL string)
	// StandIn returns what replaces a secret that the client may not have any more, or nil if the secret is removed.
	StandIn(name string) *envoy.Resource
}

// Session is the protocol of one stream. Requests and snapshots go in through Take and Adopt; Next
// returns the responses. It has no clock, socket or goroutine, and is used by one goroutine at a time.
type Session struct {
	translator  Translator
	observer    Observer
	limits      *limits.Limits
	differences *diff.Cache
	interner    *wire.Interner
	delta       bool
	profile     Profile
	divided     bool   // delta: the client takes virtual hosts by themselves
	prefix      string // of nonces

	proxy    *node.Proxy
	snapshot *snapshot.Snapshot // nil between passes: the stream may sleep through newer ones
	revision uint64             // of the last one that everything was compared with
	cohort   cohort.Key         // zero before Start
	// departing: the workload has gone from the snapshot. Until Depart the proxy keeps the inbound half of lastKnown,
	// its cohort before: callers send it requests until they learn that it is no endpoint any more.
	departing bool
	lastKnown cohort.Key // of an unknown workload: it was never known, or has departed for good

	// cohortFailed: the cohort could not be resolved at the newest snapshot. The cohort before stands, and is resolved
	// again at the next snapshot, whatever changed.
	cohortFailed bool

	// changedClusters are the clusters that a resuming client was sent before it asked for endpoints: the assignments
	// that it names are out of date, though a cluster may have changed back meanwhile. nil unless it resumes.
	changedClusters map[string]struct{}

	unrequested []string // new clusters, whose assignments are to follow

	// resuming: the client named clusters of an earlier stream, and listeners and routes of that stream may still name
	// them. No cluster is removed meanwhile.
	resuming bool
	// clustersAnswered: the client has acknowledged or rejected a response with clusters. All that it asked for when it
	// connected has been read.
	clustersAnswered bool
	resumed          bool // the client named versions of an earlier stream

	// routesWithoutHosts are the route configurations that the client was sent without their virtual hosts: it has
	// none of those.
	routesWithoutHosts map[string]struct{}
	// generations are how often the client was sent a route configuration before the last time; hasGenerations: one is
	// not zero.
	generations     map[string]uint32
	hasGenerations  bool
	firstGeneration uint32 // differs from those of earlier streams

	tombstones int // that the client was sent

	// guarded: of the secrets that the client subscribes to it may be sent those that are granted; nil: none
	guarded bool
	granted *envoy.Names
	// withdrawn are stand-ins for secrets that the client had and may not have any more; nil: none
	withdrawn *envoy.Set

	grows bool // the client asks for more than it did when it had everything

	watches []*watch // in the order of sending
	nonces  uint64
	names   int // subscribed to, of all types
}

// Profile is how the sessions of one kind of clients differ from those of others.
type Profile struct {
	// Whole: every type is answered as a whole, also an unknown one, and a change of any object concerns the client,
	// even one that changes nothing for proxies.
	Whole   bool
	Divided bool // it takes virtual hosts by themselves
	Grouped bool // it shares what it is sent with others
	Named   bool // it names the listeners and clusters that it wants
}

// Config is what a Session is made of.
type Config struct {
	Translator  Translator
	Observer    Observer
	Limits      *limits.Limits
	Differences *diff.Cache    // shared by all sessions
	Interner    *wire.Interner // likewise
	Delta       bool
	Profile     Profile
	Proxy       *node.Proxy
	Prefix      string // of nonces
	// Generation is the first one of a route configuration that the client may have had before. No two streams share
	// it.
	Generation uint32
}

// New makes a Session that has no snapshot yet.
func New(c Config) *Session {
	return &Session{
		translator: c.Translator, observer: c.Observer, limits: c.Limits, differences: c.Differences, interner: c.Interner,
		delta: c.Delta, profile: c.Profile, divided: c.Profile.Divided, proxy: c.Proxy, prefix: c.Prefix,
		firstGeneration: c.Generation, lastKnown: unknownWorkload(),
	}
}

// Take takes a request. An error ends the stream: the client broke a limit.
func (s *Session) Take(r *wire.Request) (Verdict, error) {
	v := Verdict{TypeURL: r.TypeURL}
	if err := s.check(r); err != nil {
		return v, err
	}
	w := s.find(r.TypeURL)
	first := w == nil
	if first {
		w = s.addWatch(r.TypeURL)
	}
	names, wildcard := w.names, w.wildcard
	if r.Detail != nil {
		v.Kind, v.Code, v.Message = Rejected, codes.Code(r.Detail.GetCode()), r.Detail.GetMessage()
		w.rejecting = true
	}
	var err error
	if s.delta {
		err = s.takeDelta(w, r, &v, first)
	} else {
		err = s.takeStateOfTheWorld(w, r, &v, first)
	}
	s.grows = s.grows || first || w.names != names || w.wildcard && !wildcard
	return v, err
}

// Grows reports whether the client has asked for more, such as a type or names, and has not been sent all of it yet.
func (s *Session) Grows() bool { return s.grows }

// takeAnswer takes what a request with a nonce says of a response. It returns false if the response is not
// outstanding.
func (s *Session) takeAnswer(w *watch, r *wire.Request, v *Verdict) (delivery, bool) {
	d, ok := w.acknowledge(r.Nonce)
	switch {
	case !ok:
	case v.Kind == Rejected:
		v.Number, v.Resources = d.number, d.resources
		s.rejectDelivery(w, d, v.Message)
	default:
		v.Kind, w.status.Acked = Acked, r.Nonce
		w.rejecting = w.rejecting && w.withholds()
	}
	return d, ok
}

// Snapshot returns the snapshot that the session works on, or nil between passes: the stream may sleep through newer
// ones.
func (s *Session) Snapshot() *snapshot.Snapshot { return s.snapshot }

// SetSnapshot has the session work on a snapshot that has nothing new for the stream.
func (s *Session) SetSnapshot(snap *snapshot.Snapshot) { s.snapshot = snap }

// ReleaseSnapshot ends the work on a snapshot: the client was sent all of it.
func (s *Session) ReleaseSnapshot() { s.snapshot, s.grows = nil, false }

// Revision returns that of the last snapshot that everything was compared with.
func (s *Session) Revision() uint64 { return s.revision }

// Cohort returns the proxy's, which is zero before Start.
func (s *Session) Cohort() cohort.Key { return s.cohort }

// Resuming reports whether the client resumes with clusters. No cluster is removed meanwhile.
func (s *Session) Resuming() bool { return s.resuming }

// Resumed reports whether the client named versions of an earlier stream.
func (s *Session) Resumed() bool { return s.resumed }

// Departing reports whether the proxy keeps the inbound half of a workload that has gone, until Depart.
func (s *Session) Departing() bool { return s.departing }

// Bounds that nobody has a reason to tune.
const (
	maxTypes   = 64  // on one stream; Envoy has a dozen
	maxTypeURL = 256 // bytes
)

// VerdictKind is what a request means for the responses before it.
type VerdictKind int

// The kinds.
const (
	Subscribed VerdictKind = iota // nothing: it only subscribes
	Acked
	Rejected
	Expired // it answers a response that another one followed: ignored
)

// Verdict is the outcome of one request.
type Verdict struct {
	TypeURL string
	Kind    VerdictKind
	Code    codes.Code // of a rejection
	Message string     // of a rejection

	// Of a rejection: which of the stream's responses it is about, and what that held. Zero where it is forgotten.
	Number    uint64
	Resources []*envoy.Resource
}

// find returns the watch of a type, or nil.
func (s *Session) find(typeURL string) *watch {
	for _, w := range s.watches {
		if w.kind.URL == typeURL {
			return w
		}
	}
	return nil
}

func (s *Session) addWatch(typeURL string) *watch {
	w := &watch{kind: envoy.TypeOf(typeURL)}
	w.complete = w.kind.Complete || s.profile.Whole
	s.watches = append(s.watches, w)
	slices.SortFunc(s.watches, func(a, b *watch) int {
		return cmp.Or(cmp.Compare(a.kind.Addition, b.kind.Addition), strings.Compare(a.kind.URL, b.kind.URL))
	})
	return w
}

// check holds a request to the limits. The error is the client's fault.
func (s *Session) check(r *wire.Request) error {
	if r.TypeURL == "" || len(r.TypeURL) > maxTypeURL {
		return fmt.Errorf("type_url must have 1 to %d bytes, not %d", maxTypeURL, len(r.TypeURL))
	}
	if len(s.watches) >= maxTypes && s.find(r.TypeURL) == nil {
		return fmt.Errorf("more than %d types on one stream", maxTypes)
	}
	// Such a type is not sent as a whole: the wildcard would select nothing, and hide the names beside it.
	if envoy.TypeOf(r.TypeURL).Named && !s.profile.Whole {
		r.Names.Star, r.Unsubscribed.Star = false, false
	}
	return r.Fault
}

// setNames sets the names that the client wants of a type.
func (s *Session) setNames(w *watch, names *envoy.Names) error {
	total := s.names - w.names.Len() + names.Len()
	if total > s.limits.NamesPerStream {
		return fmt.Errorf("more than %d resource names on one stream", s.limits.NamesPerStream)
	}
	s.names = total
	w.setNames(names)
	return nil
}

// Names returns how many resource names the client subscribes to, of all types.
func (s *Session) Names() int { return s.names }

// Start begins with the first snapshot. It returns false if the client cannot be served.
func (s *Session) Start(snap *snapshot.Snapshot) bool {
	s.compareWith(snap)
	return s.resolveCohort(snap)
}

// Adopt takes a newer snapshot. Call it only after Next has returned nil: then a pass belongs to one snapshot.
func (s *Session) Adopt(p *Push) {
	reassign := s.cohortFailed || p.MayReassign(s.translator, s.proxy, s.cohort, s.revision)
	if p.Full || reassign || p.Objects && s.profile.Whole {
		if s.cohortFailed = reassign && !s.resolveCohort(p.Snapshot); s.cohortFailed {
			if s.snapshot == nil { // requests are answered from some snapshot
				s.compareWith(p.Snapshot)
			}
			return
		}
		s.compareWith(p.Snapshot)
		for _, w := range s.watches {
			w.compare = w.compare || !w.idle()
		}
		return
	}
	s.compareWith(p.Snapshot)
	for _, w := range s.watches {
		w.compare = w.compare || p.Changes(w.kind) && !w.idle()
	}
}

func (s *Session) compareWith(snap *snapshot.Snapshot) { s.snapshot, s.revision = snap, snap.Revision }

// Pending reports whether Next may return a response.
func (s *Session) Pending() bool {
	return slices.ContainsFunc(s.watches, func(w *watch) bool {
		return w.pending() || s.mayRemove(w) || w.kind.URL == envoy.EndpointType && len(s.unrequested) > 0
	})
}

// Responses returns how many responses the client was sent.
func (s *Session) Responses() uint64 { return s.nonces }

// OldestUnacknowledged returns the number of the first response, from 1, that the client has neither acknowledged nor
// rejected; 0 if there is none.
func (s *Session) OldestUnacknowledged() uint64 {
	oldest := uint64(0)
	for _, w := range s.watches {
		if len(w.sent) > 0 && (oldest == 0 || w.sent[0].number < oldest) {
			oldest = w.sent[0].number
		}
	}
	return oldest
}

// Unacknowledged returns the bytes of the responses that the client has not acknowledged.
func (s *Session) Unacknowledged() int {
	n := 0
	for _, w := range s.watches {
		for _, d := range w.sent {
			n += d.size
		}
	}
	return n
}

func (s *Session) mayRemove(w *watch) bool {
	switch {
	case len(w.pendingRemoval) == 0:
		return false
	case w.kind.URL == envoy.ClusterType:
		return !s.resuming
	case w.kind.Part:
		return len(w.sent) == 0 && len(w.bisection) == 0 // the client has acknowledged what replaces them
	}
	return true
}

// EndResuming is called when the client has asked for nothing for a while. It has no effect before the client has
// answered a response with clusters: until then a late server may not have read all requests that the client sent when
// it connected. They come before the answer, because a stream keeps their order.
func (s *Session) EndResuming() { s.resuming = s.resuming && !s.clustersAnswered }

// Next returns the next response of the pass, which counts as sent, or nil when the client has everything.
func (s *Session) Next() *wire.Response {
	for _, w := range s.watches {
		for w.pending() {
			if r := s.respondAdditions(w); r != nil {
				return r
			}
		}
		if w.kind.URL == envoy.EndpointType && len(s.unrequested) > 0 {
			if r := s.sendUnrequested(w); r != nil {
				return r
			}
		}
	}
	for i := range envoy.Removals {
		for _, w := range s.watches {
			if w.kind.Removal == i && s.mayRemove(w) {
				return s.respondRemovals(w)
			}
		}
	}
	return nil
}

func (s *Session) respondAdditions(w *watch) *wire.Response {
	switch {
	case w.kind.Part && !s.divided && !s.profile.Whole:
		// Envoy would fall back from a whole route configuration to VHDS
		w.compare, w.mustAnswer, w.resend, w.bisection, w.pendingRemoval = false, false, nil, nil, nil
		return nil
	case w.idle():
		w.compare, w.mustAnswer, w.unanswered, w.answered, w.resend, w.bisection = false, false, false, "", nil, nil
		if w.hosts != nil {
			s.dropHosts(w)
		}
		return nil
	case w.whole() && !s.delta:
		return s.respondWholeState(w)
	case !w.compare && !w.mustAnswer && w.answered == "" && len(w.resend) == 0 && len(w.bisection) > 0:
		return s.sendBisected(w)
	case !w.whole():
		return s.respondByName(w)
	}
	return s.respondWholeDelta(w)
}

// targetOf returns what the client should have of a type that is sent as a whole. false: what it has stands.
func (s *Session) targetOf(w *watch) (envoy.Union, bool) {
	var u envoy.Union
	if w.kind.Part && !s.profile.Whole {
		routes := s.find(envoy.RouteType)
		if routes == nil {
			return envoy.Union{}, false
		}
		u.Shared = routes.hosts
	} else if all, ok := s.get(w.kind, s.namesOf(w)); ok {
		u = all
	} else {
		return envoy.Union{}, false
	}
	if !w.wildcard {
		u = subset(u, w.names)
	}
	return u, true
}

// namesOf returns the names by which a type that is sent as a whole is asked for, or nil: all of it.
func (s *Session) namesOf(w *watch) *envoy.Names {
	if s.profile.Named && w.kind.Complete && !w.wildcard {
		return w.names
	}
	return nil
}

// get returns what the client should have of a type: all of it, or the resources of some names. It returns false if
// the translation failed; names that failed alone are missing.
func (s *Session) get(kind *envoy.Type, names *envoy.Names) (envoy.Union, bool) {
	var u envoy.Union
	var failed error
	if kind.Secret {
		if names = s.grantedOf(names); names.Len() == 0 {
			return envoy.Union{Own: s.withdrawn}, true
		}
	}
	err := safe.Do("translate "+kind.Short, func() { u, failed = s.translator.Get(s.snapshot, s.cohort, kind.URL, names) })
	if e := cmp.Or(err, failed); e != nil {
		s.observer.Panicked(kind.URL, e)
	}
	if kind.Secret {
		u.Own = s.withdrawn
	}
	return u, err == nil
}

func (s *Session) resolveCohort(snap *snapshot.Snapshot) bool {
	err := safe.Do("translate cohort", func() {
		now := s.translator.ResolveCohort(snap, s.proxy)
		if s.cohort, s.departing = now.KeepInbound(s.lastKnown); !s.departing {
			s.lastKnown = now
		}
	})
	if err != nil {
		s.observer.Panicked("", err)
	}
	return err == nil
}

// Depart takes the inbound half of a workload that has gone from the proxy, with the next push.
func (s *Session) Depart() { s.departing, s.lastKnown = false, unknownWorkload() }

func unknownWorkload() cohort.Key { return cohort.Key{UnknownWorkload: true} }
