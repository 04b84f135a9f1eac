package session

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

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

// Observer is notified of events in a session.
type Observer interface {
	// Panicked is called if the translation of a type failed. The client keeps its resources.
	Panicked(typeURL string, err error)
	// Suppressed is called if a rejected version was not sent again.
	Suppressed(typeURL string)
	// StandIn returns the replacement of a withdrawn secret, or nil to remove the secret.
	StandIn(name string) *envoy.Resource
	// MayHave reports whether the client may subscribe to a secret.
	MayHave(secret string) bool
}

// Session is the protocol of one stream. Take and Adopt are the input, Next is the output. It has no clock, socket or
// goroutine. Only one goroutine at a time may use it.
type Session struct {
	translator  Translator
	observer    Observer
	limits      *limits.Limits
	differences *diff.Cache
	interner    *wire.Interner
	delta       bool
	profile     Profile
	divided     bool   // delta: the client supports virtual hosts on demand
	prefix      string // prefix of nonces

	proxy    *node.Proxy
	snapshot *snapshot.Snapshot // nil between passes, when the stream need not wake for newer ones
	revision uint64             // revision of the last snapshot that everything was compared with
	cohort   cohort.Key         // zero before Start
	// departing is true if the workload is missing in the snapshot. Until Depart, the proxy keeps the inbound
	// configuration of lastCohort, because clients still send requests to it.
	departing  bool
	lastCohort cohort.Key // last cohort of a known workload; an unknown workload at first and after Depart

	// cohortFailed is true if the cohort could not be resolved at the newest snapshot. The previous cohort stays, and
	// is resolved again at each snapshot.
	cohortFailed bool

	// changedClusters are the clusters that a resuming client was sent before it requested endpoints. Its assignments
	// for them are stale, even if a cluster has changed back. Nil unless the client resumes.
	changedClusters map[string]struct{}

	debts     Debts
	began     time.Time // when the client connected; zero without Expect
	published time.Time // when the newest push was published; zero before the first
	shown     uint64    // newest revision of which the client was sent a response
	// answers is true if the client has answered a response. It was sent all requests with which it connected before.
	answers bool

	incomplete bool // the last translation failed, or failed for some names

	unrequested []string // new clusters whose assignments must follow

	// resuming is true while a client that named clusters of an earlier stream may have listeners and routes of that
	// stream that refer to them. No cluster is removed until then.
	resuming bool
	// clustersAnswered is true if the client has acknowledged or rejected a response with clusters. Then all requests
	// that it sent when it connected have been read.
	clustersAnswered bool
	resumed          bool // the client named versions of an earlier stream

	// routesWithoutHosts are the route configurations that the client was sent without their virtual hosts, so that it
	// has none of them.
	routesWithoutHosts map[string]struct{}
	// generations has the number of times that the client was sent each route configuration before the last time.
	// hasGenerations is true if one is not zero.
	generations     map[string]uint32
	hasGenerations  bool
	firstGeneration uint32 // differs from the ones of earlier streams

	tombstones int // number of tombstones that the client was sent

	// guarded is true if the client may only be sent granted secrets. A nil granted has none.
	guarded bool
	granted *envoy.Names
	// withdrawn are the stand-ins for withdrawn secrets. Nil if there are none.
	withdrawn *envoy.Set
	// undecided is true if it is not known yet whether the client may have the secrets that are not granted.
	undecided bool
	judged    *envoy.Names // names of secrets that the client subscribed to at the last Grant

	grows bool // the client has requested more since it had everything

	watches []*watch // in the order of sending
	nonces  uint64
	names   int // number of subscribed names of all types
}

// Profile has the differences between the sessions of kinds of clients.
type Profile struct {
	// Whole is true if every type is sent as a whole, even an unknown one, and every changed object affects the client,
	// even one without effect on proxies.
	Whole   bool
	Divided bool // supports virtual hosts on demand
	Grouped bool // may share a subscriber group
	Named   bool // subscribes to listeners and clusters by name
}

// Config configures a Session.
type Config struct {
	Translator  Translator
	Observer    Observer
	Limits      *limits.Limits
	Differences *diff.Cache    // shared by all sessions
	Interner    *wire.Interner // shared by all sessions
	Delta       bool
	Profile     Profile
	Proxy       *node.Proxy
	Prefix      string // prefix of nonces
	// Generation is the first generation of a route configuration that the client may have had before. It must differ
	// between streams.
	Generation uint32
}

// New returns a Session without a snapshot.
func New(c Config) *Session {
	return &Session{
		translator: c.Translator, observer: c.Observer, limits: c.Limits, differences: c.Differences, interner: c.Interner,
		delta: c.Delta, profile: c.Profile, divided: c.Profile.Divided, proxy: c.Proxy, prefix: c.Prefix,
		firstGeneration: c.Generation, lastCohort: unknownWorkload(),
	}
}

// Take handles a request. It fails, and the stream must end, if the client exceeds a limit.
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
		if w.kind.Secret {
			v.Message = "it does not take a secret" // its own message may quote the content
		}
		w.rejecting = true
	}
	var rejected *delivery
	if v.Kind == Rejected {
		if i := slices.IndexFunc(w.sent, func(d delivery) bool { return d.nonce == r.Nonce }); i >= 0 {
			d := w.sent[i] // a copy, because the delivery is forgotten below
			rejected = &d
		}
	}
	resumed := s.resumed
	var err error
	if s.delta {
		err = s.takeDelta(w, r, &v, first)
	} else {
		err = s.takeStateOfTheWorld(w, r, &v, first)
	}
	if first && !s.answers {
		w.first = w.names
	}
	s.grows = s.grows || first || w.names != names || w.wildcard && !wildcard
	s.noteAnswer(w, r.Nonce, rejected, &v)
	s.noteResumed(resumed, w)
	s.settle()
	return v, err
}

// Grows reports whether the client has requested more types or names and was not sent all of them.
func (s *Session) Grows() bool { return s.grows }

// takeAnswer handles the acknowledgement or rejection in a request. It returns false if the response is not
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

// Snapshot returns the snapshot of the current pass, or nil between passes, when the stream need not wake for newer
// ones.
func (s *Session) Snapshot() *snapshot.Snapshot { return s.snapshot }

// SetSnapshot sets the snapshot of the session to one without changes for the stream.
func (s *Session) SetSnapshot(snap *snapshot.Snapshot) { s.snapshot = snap }

// ReleaseSnapshot ends the pass, because the client was sent all of it.
func (s *Session) ReleaseSnapshot() {
	s.snapshot, s.grows = nil, false
	s.endPass()
}

// Revision returns the revision of the last snapshot that everything was compared with.
func (s *Session) Revision() uint64 { return s.revision }

// Cohort returns the proxy's cohort, or zero before Start.
func (s *Session) Cohort() cohort.Key { return s.cohort }

// Resuming reports whether the client resumes with clusters. No cluster is removed meanwhile.
func (s *Session) Resuming() bool { return s.resuming }

// Resumed reports whether the client named versions of an earlier stream.
func (s *Session) Resumed() bool { return s.resumed }

// Departing reports whether the proxy keeps the inbound configuration of a deleted workload until Depart.
func (s *Session) Departing() bool { return s.departing }

// Bounds without options.
const (
	maxTypes   = 64  // on one stream; Envoy has a dozen
	maxTypeURL = 256 // in bytes
)

// VerdictKind is the meaning of a request for earlier responses.
type VerdictKind int

// Kinds of verdicts.
const (
	Subscribed VerdictKind = iota // none: it only subscribes
	Acked
	Rejected
	Expired // it answers a response that is not the newest, and is ignored
)

// Verdict is the result of a request.
type Verdict struct {
	TypeURL string
	Kind    VerdictKind
	Code    codes.Code // of a rejection
	Message string     // of a rejection

	// Number and Resources are the number and the content of a rejected response. Zero if it is no longer known.
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
	w := &watch{kind: envoy.TypeOf(typeURL), bit: 1 << len(s.watches)}
	w.complete = w.kind.Complete || s.profile.Whole
	s.watches = append(s.watches, w)
	slices.SortFunc(s.watches, func(a, b *watch) int {
		return cmp.Or(cmp.Compare(a.kind.Addition, b.kind.Addition), strings.Compare(a.kind.URL, b.kind.URL))
	})
	return w
}

// check checks a request against the limits.
func (s *Session) check(r *wire.Request) error {
	if r.TypeURL == "" || len(r.TypeURL) > maxTypeURL {
		return fmt.Errorf("type_url must have 1 to %d bytes, not %d", maxTypeURL, len(r.TypeURL))
	}
	if len(s.watches) >= maxTypes && s.find(r.TypeURL) == nil {
		return fmt.Errorf("more than %d types on one stream", maxTypes)
	}
	// Such a type is not sent as a whole: the wildcard would select nothing, and hide the names besides it.
	if envoy.TypeOf(r.TypeURL).Named && !s.profile.Whole {
		r.Names.Star, r.Unsubscribed.Star = false, false
	}
	return r.Fault
}

// setNames sets the names of a type that the client subscribes to.
func (s *Session) setNames(w *watch, names *envoy.Names) error {
	total := s.names - w.names.Len() + names.Len()
	if total > s.limits.NamesPerStream {
		return fmt.Errorf("more than %d resource names on one stream", s.limits.NamesPerStream)
	}
	s.names = total
	w.setNames(names)
	return nil
}

// Names returns the number of resource names that the client subscribes to, of all types.
func (s *Session) Names() int { return s.names }

// Start begins with the first snapshot. It returns false if the cohort cannot be resolved.
func (s *Session) Start(snap *snapshot.Snapshot) bool {
	s.compareWith(snap)
	return s.resolveCohort(snap)
}

// Adopt takes a newer snapshot. It must be called only after Next has returned nil, so that a pass belongs to one
// snapshot.
func (s *Session) Adopt(p *Push) {
	reassign, since := s.cohortFailed || p.MayReassign(s.translator, s.proxy, s.cohort, s.revision), s.revision
	if p.Full || reassign || p.Objects && s.profile.Whole {
		s.cohortFailed = reassign && !s.resolveCohort(p.Snapshot)
		if s.beginPass(p, since, s.cohortFailed); s.cohortFailed {
			if s.snapshot == nil { // requests need a snapshot
				s.compareWith(p.Snapshot)
			}
			return
		}
		s.compareWith(p.Snapshot)
		for _, w := range s.watches {
			w.compare = w.compare || !w.idle() && (reassign || w.failed || !p.Same.Has(w.kind))
		}
		return
	}
	s.beginPass(p, since, false)
	s.compareWith(p.Snapshot)
	for _, w := range s.watches {
		w.compare = w.compare || !w.idle() && p.Changes(w.kind) && (w.failed || !p.Same.Has(w.kind))
	}
}

func (s *Session) compareWith(snap *snapshot.Snapshot) { s.snapshot, s.revision = snap, snap.Revision }

// Pending reports whether Next may return a response.
func (s *Session) Pending() bool {
	return slices.ContainsFunc(s.watches, func(w *watch) bool {
		return w.pending() || s.mayRemove(w) || w.kind.URL == envoy.EndpointType && len(s.unrequested) > 0
	})
}

// Responses returns the number of responses that the client was sent.
func (s *Session) Responses() uint64 { return s.nonces }

// OldestUnacknowledged returns the number, from 1, of the oldest response that the client has neither acknowledged nor
// rejected, or 0.
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
		return len(w.sent) == 0 && len(w.bisection) == 0 // the client has acknowledged their replacements
	}
	return true
}

// EndResuming is called when the client has requested nothing for a while. It has no effect before the client has
// answered a response with clusters, because a late server may not have read all requests that the client sent when it
// connected. They precede the answer on the stream.
func (s *Session) EndResuming() {
	s.resuming = s.resuming && !s.clustersAnswered
	s.settle()
}

// Next returns the next response of the pass and records it as sent. It returns nil if the client has everything.
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
	s.endPass()
	return nil
}

func (s *Session) respondAdditions(w *watch) *wire.Response {
	switch {
	case w.kind.Part && !s.divided && !s.profile.Whole:
		// Envoy would fall back from a whole route configuration to VHDS.
		w.compare, w.mustAnswer, w.resend, w.bisection, w.pendingRemoval = false, false, nil, nil, nil
		w.forgetInitial()
		return nil
	case w.idle():
		w.compare, w.mustAnswer, w.answerUnknown, w.lastUnknown, w.resend, w.bisection = false, false, false, "", nil, nil
		w.forgetInitial()
		if w.hosts != nil {
			s.dropHosts(w)
		}
		return nil
	case w.whole() && !s.delta:
		return s.respondWholeState(w)
	case !w.compare && !w.mustAnswer && w.lastUnknown == "" && len(w.resend) == 0 && len(w.bisection) > 0:
		return s.sendBisected(w)
	case !w.whole():
		return s.respondByName(w)
	}
	return s.respondWholeDelta(w)
}

// targetOf returns the resources of a whole type that the client should have. It returns false if its current ones
// stay.
func (s *Session) targetOf(w *watch) (envoy.Union, bool) {
	var u envoy.Union
	if w.kind.Part && !s.profile.Whole {
		routes := s.find(envoy.RouteType)
		if routes == nil {
			return envoy.Union{}, false
		}
		u.Shared = routes.hosts
	} else {
		all, ok := s.get(w.kind, s.namesOf(w))
		if s.noteIncomplete(w); !ok {
			return envoy.Union{}, false
		}
		u = all
	}
	if !w.wildcard {
		u = subset(u, w.names)
	}
	return u, true
}

// noteIncomplete records whether the last translation of a type failed, or failed for some names.
func (s *Session) noteIncomplete(w *watch) {
	if w.incomplete = s.incomplete; w.incomplete {
		s.oweFailed(w)
	}
}

// namesOf returns the names with which a whole type is requested from the Translator, or nil for all.
func (s *Session) namesOf(w *watch) *envoy.Names {
	if s.profile.Named && w.kind.Complete && !w.wildcard {
		return w.names
	}
	return nil
}

// get returns the resources of a type that the client should have: all, or the ones with some names. It returns false
// if the translation failed. Names that failed alone are missing.
func (s *Session) get(kind *envoy.Type, names *envoy.Names) (envoy.Union, bool) {
	var u envoy.Union
	var failed error
	s.incomplete = false
	if kind.Secret {
		if names = s.grantedOf(names); names.Len() == 0 {
			return envoy.Union{Own: s.withdrawn}, true
		}
	}
	err := safe.Do("translate "+kind.Short, func() { u, failed = s.translator.Get(s.snapshot, s.cohort, kind.URL, names) })
	if e := cmp.Or(err, failed); e != nil {
		s.observer.Panicked(kind.URL, e)
		s.incomplete = true
	}
	if kind.Secret {
		u.Own = s.withdrawn
	}
	return u, err == nil
}

func (s *Session) resolveCohort(snap *snapshot.Snapshot) bool {
	err := safe.Do("translate cohort", func() {
		now := s.translator.ResolveCohort(snap, s.proxy)
		if s.cohort, s.departing = now.KeepInbound(s.lastCohort); !s.departing {
			s.lastCohort = now
		}
	})
	if err != nil {
		s.observer.Panicked("", err)
	}
	return err == nil
}

// Depart removes the inbound configuration of a deleted workload from the proxy with the next push.
func (s *Session) Depart() { s.departing, s.lastCohort = false, unknownWorkload() }

func unknownWorkload() cohort.Key { return cohort.Key{UnknownWorkload: true} }
