package xds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/pilot/xds/session"
	"github.com/istiod-lite/istiod-lite/pilot/xds/wire"
)

// conn is one stream. The goroutine that calls run owns it.
type conn struct {
	server    *Server
	stream    grpc.ServerStream
	delta     bool
	remote    string
	accepted  *trackedConn // nil if no listener tracks it
	peer      identity.Peer
	connected time.Time
	began     time.Time // when the stream had last waited for its turn; newcomer and resumeMax begin then

	// The fields below are set before the stream is registered, and constant afterwards.
	id      string // POD.NAMESPACE-NUMBER
	number  uint64
	proxy   *node.Proxy
	profile *profile
	version string // label of the stream in the metric pilot_xds

	// Guarded by server.mu. Only the owner changes group and cohort, and it may read them without the lock.
	group    *subscriberGroup // nil if the stream checks each push itself
	cohort   cohort.Key       // of the session
	returned bool             // the departure of its proxy was forgotten; only the owner changes it
	complete bool             // the client resumes an earlier stream, or has answered its first configuration
	noting   bool             // the owner will call noteArrival
	notified span             // newest consecutive snapshots that were offered to this stream alone
	first    uint64           // newest revision when the stream began

	requests chan incoming // from the reader
	sent     chan error    // result of a Send in another goroutine
	wake     chan struct{} // capacity 1; wakes the owner for a push, a call or the end
	stop     chan error    // capacity 1; error to end the stream with
	turns    chan struct{} // turns of the peer's identity or address to wait for a slot; nil if unbounded
	cohorts  *cohorts      // cohorts of the peer's identity or address; nil if unbounded
	tenant   *cohorts      // cohorts of the peer's tenant
	done     chan struct{} // closed when run returns

	mu            sync.Mutex
	pendingPush   *session.Push            // merged pushes that the owner has not taken, or nil
	taken         *session.Push            // push that the owner has taken and the session has not, or nil
	calls         []func(*session.Session) // functions for the owner to run
	accessChanged bool                     // Access has answered since applyAccess

	sendingType string // type URL of the response being sent, or empty
	sendStarted time.Time

	warnings *rate.Limiter // bounds the stream's use of server.warnings

	// The fields below are owned by the goroutine of run.
	session          *session.Session
	stopAccessWatch  func()                  // nil until the client first asks for a secret
	wanted           map[kinds.Key]bool      // objects that the client's granted secrets are made of
	guarded          bool                    // the session is guarded: it sends only granted secrets
	shared           *snapshot.SharedSecrets // SharedSecrets of the last applyAccess
	sharedGrants     map[string]bool         // secrets granted because they are shared, independent of Access
	refused          string                  // secret that Access denies, or empty
	located          bool                    // a snapshot has shown that the peer is in the cluster that its proxy names
	joined           bool                    // the session has started
	hadWorkload      bool                    // a snapshot had the workload
	names            map[string]*envoy.Names // by type URL, as held in server.admission
	deadlines        deadlines
	clusterPendingAt time.Time // when the proxy's cluster was last found to be unread
	// inWaitList is true if the stream is in server.withoutCertificates.
	inWaitList bool
	pass       pass
	turn       bool           // the stream has taken one of turns
	sending    *wire.Response // response being sent, or nil
	watchdog   *watchdog      // calls cut when the peer takes nothing
	made       time.Duration  // duration of the last translation
	account    account
	place      place
	versions   []wire.InitialVersions // named by the client, in the accounts of server.admission
}

// incoming is a request, or the error that ended the stream.
type incoming struct {
	request *wire.Request
	err     error
}

// pass holds measurements of one push to one stream.
type pass struct {
	received  time.Time
	responses int
}

// firstRequest bounds the time until the first request of a stream.
const firstRequest = 30 * time.Second

// resumeQuiet is how long a client that resumes an earlier stream must request nothing before removed clusters are
// removed from it. They also stay until the client has answered a response with clusters: see session.EndResuming.
const resumeQuiet = time.Second

// resumeMax bounds how long the removal of clusters waits for such a client. Where services change often, it never
// becomes quiet.
const resumeMax = 15 * time.Second

func newConn(s *Server, stream grpc.ServerStream, delta bool, peer identity.Peer) *conn {
	c := &conn{
		server: s, stream: stream, delta: delta, peer: peer, connected: time.Now(), began: time.Now(),
		requests: make(chan incoming),
		sent:     make(chan error, 1),
		wake:     make(chan struct{}, 1),
		stop:     make(chan error, 1),
		warnings: rate.NewLimiter(1, 32),
		done:     make(chan struct{}),
	}
	remote, local := addresses(stream.Context())
	c.remote, c.accepted = remote, s.listeners.find(remote, local)
	c.deadlines.set(credential, peer.Expires)
	c.scheduleReauthentication()
	return c
}

// offer hands a push to the owner, merged with one that it has not taken yet.
func (c *conn) offer(p *session.Push) {
	c.mu.Lock()
	c.pendingPush = c.pendingPush.Merge(p)
	c.mu.Unlock()
	c.rouse()
}

// rouse wakes the owner.
func (c *conn) rouse() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *conn) takePush() *session.Push {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.pendingPush
	c.pendingPush, c.taken = nil, p
	return p
}

// begins records that the session has taken the push of takePush.
func (c *conn) begins() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.taken = nil
}

func (c *conn) hasWaiting() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pendingPush != nil
}

// end makes the owner end the stream with err. Later calls have no effect.
func (c *conn) end(err error) {
	select {
	case c.stop <- err:
		c.rouse()
	default:
	}
}

// call runs fn in the owner's goroutine. It returns false if ctx or the stream ended first; fn may still run later.
func (c *conn) call(ctx context.Context, fn func(*session.Session)) bool {
	return c.await(ctx, c.post(fn))
}

// post passes fn to the owner to run. The channel is closed when fn has returned.
func (c *conn) post(fn func(*session.Session)) <-chan struct{} {
	ran := make(chan struct{})
	c.mu.Lock()
	c.calls = append(c.calls, func(s *session.Session) { fn(s); close(ran) })
	c.mu.Unlock()
	c.rouse()
	return ran
}

// await waits for a posted function, and reports whether it returned before ctx or the stream ended.
func (c *conn) await(ctx context.Context, ran <-chan struct{}) bool {
	select {
	case <-ran:
		return true
	case <-c.done:
	case <-ctx.Done():
	}
	select { // both channels may be ready
	case <-ran:
		return true
	default:
		return false
	}
}

// runCalls applies a new answer of Access and runs the posted functions.
func (c *conn) runCalls() {
	c.mu.Lock()
	calls, accessChanged := c.calls, c.accessChanged
	c.calls, c.accessChanged = nil, false
	c.mu.Unlock()
	if accessChanged {
		c.applyAccess()
		c.joinGroup() // granted secrets are part of the group's key
	}
	for _, fn := range calls {
		fn(c.session)
	}
}

// run serves the stream. Its goroutine is the owner.
func (c *conn) run() error {
	defer close(c.done)
	a, err := c.server.admission.arrive(c.stream.Context(), c.peer, c.server.closing)
	if err != nil {
		return err
	}
	c.began = time.Now()
	reader := func() {
		defer c.end(status.Error(codes.Internal, "internal error")) // after a panic; otherwise the stream has ended
		defer a.end()
		c.read(a)
	}
	if !c.server.spawn("xds reader", reader) {
		a.end()
		return errShutdown()
	}
	defer c.releaseVersions()
	first, err := c.greet()
	if err != nil || first == nil { // without an error, the client left before its first request
		return err
	}
	defer c.server.remove(c)
	log := c.server.o.Logger.With("conn", c.id)
	c.arrived()
	err = c.serve(first, log)
	c.account.end(time.Now())
	c.left(err)
	return err
}

// serve answers the first request and all later ones.
func (c *conn) serve(first *wire.Request, log *slog.Logger) error {
	if err := c.introduce(); err != nil {
		return err
	}
	defer c.leave()
	if err := c.request(first, log); err != nil {
		return err
	}
	if !c.knowsWorkload() {
		c.deadlines.set(workloadKnown, time.Now().Add(c.server.podWait))
	}
	return c.loop(log)
}

// greet waits for the first request, identifies the proxy and registers the stream. It keeps nothing else of the
// request's node. It returns nil if the client leaves first.
func (c *conn) greet() (*wire.Request, error) {
	s := c.server
	timer := time.NewTimer(firstRequest)
	defer timer.Stop()
	select {
	case in := <-c.requests:
		if in.err != nil {
			return nil, ending(in.err)
		}
		r := in.request
		c.keepVersions(r)
		if asksForDebug(r) {
			return nil, c.serveDebug(r)
		}
		proxy, err := node.Parse(r.Node)
		if err != nil {
			return nil, status.Error(codes.InvalidArgument, err.Error())
		}
		proxy.Capabilities |= r.Capabilities
		r.Node = nil
		c.profile = s.profileOf(proxy, c.delta)
		if err := s.authorize(c.profile, c.peer, proxy); err != nil {
			return nil, err
		}
		// metadata cannot override the cluster of the credential
		if proxy.Cluster = s.o.Authorizer.ClusterID(proxy.Cluster); proxy.Cluster == "" {
			proxy.Cluster = c.peer.Bound.Cluster
		}
		c.number = s.numbers.Add(1)
		c.proxy, c.id = proxy, proxy.ID+"-"+strconv.FormatUint(c.number, 10)
		c.session = session.New(session.Config{
			Translator: c.profile.translator, Observer: (*observing)(c), Limits: &s.o.Limits, Differences: &s.differences,
			Interner: s.interner, Delta: c.delta, Profile: c.profile.Profile, Proxy: proxy,
			Prefix: strconv.FormatUint(c.number, 36) + ".", Generation: rand.Uint32(),
		})
		c.session.Expect(r.Resumes || !r.Versions.Empty(), envoy.TypeOf(r.TypeURL).Complete, c.connected)
		snap, err := s.add(c)
		c.session.SetSnapshot(snap)
		return r, err
	case <-timer.C:
		return nil, status.Error(codes.DeadlineExceeded, "the client sent no request within 30 seconds")
	case err := <-c.stop:
		return nil, err
	case <-s.closing:
		return nil, errShutdown()
	}
}

// loop serves until the stream ends. It waits at the same time for a request, a push, the current Send, the next
// deadline, and one of a place, a turn and a translation slot. Each channel makes each wait more expensive.
func (c *conn) loop(log *slog.Logger) error {
	s := c.server
	c.watchdog = newWatchdog(c.accepted, s.o.Limits.SendGrace, log, func() { c.cut(log) })
	defer c.watchdog.stop()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	defer c.endTurn()
	defer c.leavePlace()
	var armed time.Time // the deadline that timer is set to
	for {
		select {
		case err := <-c.stop:
			return err
		default:
		}
		c.runCalls()
		var expired <-chan time.Time
		if next := c.deadlines.next(); !next.IsZero() {
			if expired = timer.C; next != armed {
				armed = next
				timer.Reset(time.Until(next))
			}
		}
		var turn, slot, urgentSlot chan struct{}
		var place <-chan struct{}
		switch {
		case !c.ready():
			c.endTurn()
		case !c.takePlace():
			place = c.place.got
		case !c.takeTurn():
			turn = c.turns
		default:
			if slot = s.slots; c.urgent() {
				urgentSlot = s.urgentSlot
			}
			// A slot is usually free, and this check is much cheaper than a select on many channels.
			if taken := free(urgentSlot, slot); taken != nil {
				if err := c.step(taken); err != nil {
					return ending(err)
				}
				continue
			}
		}
		var sent chan error
		if c.sending != nil {
			sent = c.sent
		}
		select {
		case <-place:
		case turn <- struct{}{}:
			c.turn = true
		case urgentSlot <- struct{}{}:
			if err := c.step(urgentSlot); err != nil {
				return ending(err)
			}
		case slot <- struct{}{}:
			if err := c.step(slot); err != nil {
				return ending(err)
			}
		case err := <-sent:
			if err := c.delivered(err); err != nil {
				return ending(err)
			}
		case in := <-c.requests:
			if in.err != nil {
				return ending(in.err)
			}
			c.keepVersions(in.request)
			if err := c.request(in.request, log); err != nil {
				return err
			}
		case <-expired:
			armed = time.Time{}
			c.expire(log)
		case <-c.wake:
			c.woken()
		}
	}
}

// takeTurn reports whether the stream may wait for a slot: it has a turn or needs none. An identity has one turn more
// than there are slots. So it can use all slots, but only one of its streams waits for a slot besides.
func (c *conn) takeTurn() bool {
	if !c.turn {
		c.turn = free(c.turns) != nil
	}
	return c.turn || c.turns == nil
}

// endTurn returns the turn of the stream, if it has one.
func (c *conn) endTurn() {
	if c.turn {
		c.turn = false
		<-c.turns
	}
}

// ready reports whether the stream has something to translate and may do so.
func (c *conn) ready() bool {
	return c.sending == nil && !c.deadlines.waits(workloadKnown) && (!c.joined || c.session.Pending() || c.hasWaiting())
}

// expire handles the deadlines that have passed.
func (c *conn) expire(log *slog.Logger) {
	for {
		x, ok := c.deadlines.expire(time.Now())
		if !ok {
			return
		}
		switch x {
		case workloadKnown:
			if c.waitsForCluster() {
				c.deadlines.set(workloadKnown, time.Now().Add(c.server.podWait))
			} else {
				c.server.metrics.workloadTimeouts.Inc()
			}
		case warm:
			c.markWaiting(log)
		case resumed:
			c.session.EndResuming()
		case credential:
			c.end(status.Error(codes.Unauthenticated, "the caller's credential has expired"))
		case proof:
			c.reauthenticate()
		case placed:
			c.leavePlace()
		case departed:
			c.session.Depart()
			c.offer(c.server.newestPush())
		}
	}
}

// free takes a slot that is free and that no other stream waits for. It returns nil if there is none.
func free(slots ...chan struct{}) chan struct{} {
	for _, slot := range slots {
		if slot == nil {
			continue
		}
		select {
		case slot <- struct{}{}:
			return slot
		default:
		}
	}
	return nil
}

// newcomer is how long a stream is new. A proxy that starts requests one type after the other, and has no configuration
// until then.
const newcomer = 10 * time.Second

// urgent reports whether the stream takes precedence: gateways, which other proxies depend on, and new streams. Peers
// on other hosts without a proved identity never do.
func (c *conn) urgent() bool {
	if h, bounded := c.peer.Holder(); bounded && !h.Proved() {
		return false
	}
	return c.profile.urgent || !c.joined || time.Since(c.began) < c.server.newcomer
}

// request handles one request and updates the stream's deadlines.
func (c *conn) request(r *wire.Request, log *slog.Logger) error {
	if err := c.take(r, log); err != nil {
		return err
	}
	if r.Asks() || !c.delta || envoy.TypeOf(r.TypeURL).Secret { // other requests leave the key of the group as it is
		c.joinGroup()
	}
	c.settleVersions()
	c.keepPlace()
	now := time.Now()
	// EndResuming has no effect before the client answers. Any request may be the answer, so each sets the deadline again.
	if c.session.Resuming() && (!c.deadlines.waits(resumed) || r.Asks() && now.Sub(c.began) < resumeMax) {
		c.deadlines.set(resumed, now.Add(resumeQuiet))
	}
	warming := c.warming()
	if c.deadlines.keep(warm, warming, now.Add(c.server.warmTime)); !warming {
		c.unmarkWaiting()
	}
	return nil
}

// take passes one request to the session and records the result.
func (c *conn) take(r *wire.Request, log *slog.Logger) error {
	s := c.server
	s.metrics.request(r.Size)
	if c.report(r) {
		return nil
	}
	if asksForDebug(r) {
		return status.Errorf(codes.InvalidArgument, "%s needs a stream of its own", r.TypeURL)
	}
	kind := envoy.TypeOf(r.TypeURL)
	if kind.Secret && r.Fault == nil && !c.allowSecrets(r, log) {
		return nil
	}
	v, err := c.session.Take(r)
	if err != nil {
		s.warnings.log(log.Warn, c.warnings, "ending a stream: the proxy sent an invalid request", "err", err)
		return status.Error(codes.InvalidArgument, err.Error())
	}
	before, now := c.names[kind.URL], c.session.Subscribed(kind.URL)
	lists.Put(&c.names, kind.URL, now)
	if err := s.admission.hold(c.peer, kind, before, now); err != nil {
		return err
	}
	c.returning()
	if kind.Secret {
		c.reviewSecrets()
	}
	st := c.session.StatusOf(v.TypeURL)
	switch v.Kind {
	case session.Acked:
		st.AckedAt = time.Now()
		c.countAnswered(st.AckedAt)
	case session.Expired:
		s.metrics.expired[envoy.ShortType(v.TypeURL)].Inc()
	case session.Rejected:
		s.metrics.reject(v.TypeURL, c.proxy.ID, v.Code)
		st.LastError = fmt.Sprintf("%v: %s", v.Code, shorten(v.Message, 4<<10))
		st.LastErrorAt = time.Now()
		c.countRejected(v, st.LastErrorAt)
		s.warnings.log(
			log.Warn, c.warnings, "the proxy rejected a response", "type", envoy.ShortType(v.TypeURL), "err", shorten(v.Message, 1<<10),
		)
	}
	return nil
}

// shorten returns a copy of at most n bytes of s, so that the result does not keep s in memory.
func shorten(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return string([]byte(s[:n])) + "…"
}

// ending converts the error of a failed Recv or Send to the result of the stream: nil if the client left.
func ending(err error) error {
	if errors.Is(err, io.EOF) || status.Code(err) == codes.Canceled {
		return nil
	}
	return err
}

// observing is the session.Observer of a conn.
type observing conn

func (o *observing) Panicked(typeURL string, err error) {
	o.server.metrics.internalErrors.Inc()
	o.server.o.Logger.Error(
		"failed to translate resources: the proxy keeps its last ones", "conn", o.id, "type", envoy.ShortType(typeURL), "err", err,
	)
}

func (o *observing) MayHave(secret string) bool { return (*conn)(o).allowSecret(secret) == nil }

func (o *observing) StandIn(name string) *envoy.Resource { return o.server.standIns.of(name) }

func (o *observing) Suppressed(string) { o.server.metrics.suppressed.Inc() }
