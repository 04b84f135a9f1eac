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
	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/pilot/xds/session"
	"github.com/istiod-lite/istiod-lite/pilot/xds/wire"
)

// conn is one stream. Its owner is the goroutine that calls run.
type conn struct {
	server    *Server
	stream    grpc.ServerStream
	delta     bool
	remote    string
	peer      identity.Peer
	local     string
	connected time.Time

	// Set before the stream is registered, constant after.
	id      string // <pod>.<namespace>-<number>
	number  uint64
	proxy   *node.Proxy
	profile *profile
	version string // the label under which it is counted

	// Guarded by server.mu; the first two are changed by the owner alone, who may read them without.
	group    *subscriberGroup // nil: the stream checks each push itself
	cohort   cohort.Key       // of the session
	notified span             // the newest consecutive snapshots that were offered to this stream alone

	requests chan incoming // from the reader
	sent     chan error    // the outcome of the one Send, where it is not the owner's
	wake     chan struct{} // something is waiting, or asked, or it is to stop
	stop     chan error    // one error, with which to end
	turns    chan struct{} // of the peer's identity or address, to wait for a slot; nil if no bound is for it
	cohorts  *cohorts      // of the peer's identity or address; nil if no bound is for it
	tenant   *cohorts      // of its tenant
	done     chan struct{} // closed when the owner ends

	mu       sync.Mutex
	waiting  *session.Push            // what was offered and not taken, or nil
	asked    []func(*session.Session) // to be run by the owner
	answered bool                     // the Access has answered since its last answer was applied

	sendingType string // type URL of the response that is being sent, or empty
	sendStarted time.Time

	warnings *rate.Limiter // its share of server.warnings

	// The owner's alone.
	session         *session.Session
	stopAccessWatch func()                  // nil until the client first asks for a secret
	wanted          map[kinds.Key]bool      // what the secrets are made of that the client may be sent
	guarded         bool                    // the session is: it may be sent only what is granted
	shared          *snapshot.SharedSecrets // by which that was decided
	sharedGrants    map[string]bool         // secrets that are granted because they are shared, independent of the Access
	refused         string                  // a secret that is not granted because the Access says no; empty: none
	located         bool                    // a snapshot has shown that the peer is in the cluster that its proxy names
	joined          bool
	names           map[string]*envoy.Names // by type URL, as counted by server.admission
	deadlines       deadlines
	lateAt          time.Time // when its cluster was last seen not to have been read
	inWaitList      bool      // the stream is in server.waiting
	pass            pass
	turn            bool           // one of turns is taken
	sending         *wire.Response // nil: no Send is under way
	watchdog        *time.Timer    // runs cut
	made            time.Duration
	account         account
}

// incoming is a request, or how the stream ended.
type incoming struct {
	request *wire.Request
	err     error
}

// pass is what is measured of one push at one stream.
type pass struct {
	received  time.Time
	responses int
}

// firstRequest bounds how long a stream may say nothing at all.
const firstRequest = 30 * time.Second

// resumeQuiet is how long a client that resumes an earlier stream has to ask for nothing before clusters that are gone
// are removed. They also stay until the client has answered a response with clusters: see session.EndResuming.
const resumeQuiet = time.Second

// resumeMax bounds how long the removal of clusters waits for a client that resumes and keeps asking, as it does where
// services come and go.
const resumeMax = 15 * time.Second

func newConn(s *Server, stream grpc.ServerStream, delta bool, peer identity.Peer) *conn {
	c := &conn{
		server: s, stream: stream, delta: delta, peer: peer, connected: time.Now(),
		requests: make(chan incoming),
		sent:     make(chan error, 1),
		wake:     make(chan struct{}, 1),
		stop:     make(chan error, 1),
		warnings: rate.NewLimiter(1, 32),
		done:     make(chan struct{}),
	}
	c.remote, c.local = addresses(stream.Context())
	c.deadlines.set(credential, peer.Expires)
	c.keepProof()
	return c
}

// offer leaves a push for the owner, merged with what waits already.
func (c *conn) offer(p *session.Push) {
	c.mu.Lock()
	c.waiting = c.waiting.Merge(p)
	c.mu.Unlock()
	c.rouse()
}

// rouse has the owner look for what there is.
func (c *conn) rouse() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *conn) takePush() *session.Push {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.waiting
	c.waiting = nil
	return p
}

func (c *conn) hasWaiting() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waiting != nil
}

// end has the owner end the stream. Only the first call counts.
func (c *conn) end(err error) {
	select {
	case c.stop <- err:
		c.rouse()
	default:
	}
}

// ask has the owner run fn, and reports whether it did before ctx ended. If not, fn may still run later.
func (c *conn) ask(ctx context.Context, fn func(*session.Session)) bool {
	return c.await(ctx, c.put(fn))
}

// put has the owner run fn. The channel is closed when fn has returned.
func (c *conn) put(fn func(*session.Session)) <-chan struct{} {
	ran := make(chan struct{})
	c.mu.Lock()
	c.asked = append(c.asked, func(s *session.Session) { fn(s); close(ran) })
	c.mu.Unlock()
	c.rouse()
	return ran
}

// await waits for what was put, and reports whether it was done before ctx ended.
func (c *conn) await(ctx context.Context, ran <-chan struct{}) bool {
	select {
	case <-ran:
		return true
	case <-c.done:
	case <-ctx.Done():
	}
	select { // perhaps long ago
	case <-ran:
		return true
	default:
		return false
	}
}

// answer applies a new answer of the Access and runs what was asked.
func (c *conn) answer() {
	c.mu.Lock()
	asked, answered := c.asked, c.answered
	c.asked, c.answered = nil, false
	c.mu.Unlock()
	if answered {
		c.applyAccess()
		c.joinGroup() // what it may be sent is part of its group's key
	}
	for _, fn := range asked {
		fn(c.session)
	}
}

// read hands on requests until the stream ends. Only the request on its way is kept.
func (c *conn) read() {
	l := &c.server.o.Limits
	bucket := rate.NewLimiter(rate.Limit(l.RequestsPerSecond), max(1, l.RequestsBurst))
	var names *wire.Recent
	if !c.delta {
		names = &wire.Recent{}
	}
	for {
		r := &wire.Request{Delta: c.delta, Interner: c.server.interner, Limits: l, Recent: names}
		if err := c.stream.RecvMsg(r); err != nil {
			select {
			case c.requests <- incoming{err: err}:
			case <-c.done:
			}
			return
		}
		// A client that asks too often is held back by not reading from it.
		cost := min(1+r.Size>>16, bucket.Burst()) // a large request is as much work as many
		if wait := bucket.ReserveN(time.Now(), cost).Delay(); wait > 0 {
			select {
			case <-time.After(wait):
			case <-c.done:
				return
			}
		}
		select {
		case c.requests <- incoming{request: r}:
		case <-c.done:
			return
		}
	}
}

// run is the owner.
func (c *conn) run() error {
	defer close(c.done)
	if !c.server.spawn("xds reader", c.read) {
		return errShutdown()
	}
	first, err := c.greet()
	if err != nil || first == nil { // without an error: the client left before it said anything
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

// serve answers the first request and all after it.
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

// greet waits for the first request, learns from it who the proxy is, and registers the stream. Nothing of the
// request's node is kept but that. It returns nil if the client leaves instead.
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
		if proxy.Cluster = s.o.Authorizer.ClusterID(proxy.Cluster); proxy.Cluster == "" { // its word is not needed
			proxy.Cluster = c.peer.Bound.Cluster
		}
		c.number = s.numbers.Add(1)
		c.proxy, c.id = proxy, proxy.ID+"-"+strconv.FormatUint(c.number, 10)
		c.session = session.New(session.Config{
			Translator: c.profile.translator, Observer: (*observing)(c), Limits: &s.o.Limits, Differences: &s.differences,
			Interner: s.interner, Delta: c.delta, Profile: c.profile.Profile, Proxy: proxy,
			Prefix: strconv.FormatUint(c.number, 36) + ".", Generation: rand.Uint32(),
		})
		snap, err := s.add(c)
		c.session.SetSnapshot(snap)
		return r, err
	case <-timer.C:
		return nil, status.Error(codes.DeadlineExceeded, "no request came")
	case <-s.closing:
		return nil, errShutdown()
	}
}

// loop serves until the stream ends. It waits for everything at once: a request, a push, the Send under way, a slot to
// translate in, the next deadline. Each further channel makes each wait more expensive.
func (c *conn) loop(log *slog.Logger) error {
	s := c.server
	c.watchdog = time.AfterFunc(time.Hour, func() { safe.Run(log, "xds watchdog", func() { c.cut(log) }) })
	defer c.watchdog.Stop()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	defer c.endTurn()
	var armed time.Time // for what timer was set
	for {
		select {
		case err := <-c.stop:
			return err
		default:
		}
		c.answer()
		var expired <-chan time.Time
		if next := c.deadlines.next(); !next.IsZero() {
			if expired = timer.C; next != armed {
				armed = next
				timer.Reset(time.Until(next))
			}
		}
		var turn, slot, urgentSlot chan struct{}
		switch {
		case !c.ready():
			c.endTurn()
		case !c.takeTurn():
			turn = c.turns
		default:
			if slot = s.slots; c.urgent() {
				urgentSlot = s.urgentSlot
			}
			// Most often one is free: to wait for many channels costs more than all else.
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

// takeTurn reports whether the stream may wait for a slot, which is true if it has a turn or needs none. An identity
// has one turn more than there are slots: it may use all of them, and others wait behind no more of its streams than
// that.
func (c *conn) takeTurn() bool {
	if !c.turn {
		c.turn = free(c.turns) != nil
	}
	return c.turn || c.turns == nil
}

// endTurn gives back the turn of the stream, if it has one.
func (c *conn) endTurn() {
	if c.turn {
		c.turn = false
		<-c.turns
	}
}

// ready reports whether the stream has something to translate, and may.
func (c *conn) ready() bool {
	return c.sending == nil && !c.deadlines.waits(workloadKnown) && (!c.joined || c.session.Pending() || c.hasWaiting())
}

// expire does what is due when deadlines have passed.
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
				c.server.metrics.waitsInVain.Inc()
			}
		case warm:
			c.markWaiting(log)
		case resumed:
			c.session.EndResuming()
		case credential:
			c.end(status.Error(codes.Unauthenticated, "the proof of the caller's identity has expired"))
		case proof:
			c.judgeAgain()
		case departed:
			c.session.Depart()
			c.offer(c.server.newestPush())
		}
	}
}

// free takes a slot that is free, and nobody waits for, and reports which. nil: there is none.
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

// newcomer is how long a stream is new: a proxy that starts asks for one type after the other, and has no
// configuration to go on with.
const newcomer = 10 * time.Second

// urgent reports whether the stream goes before others: gateways, through which others wait, and new streams. Those
// that come from other hosts and prove no identity never do.
func (c *conn) urgent() bool {
	if h, bounded := c.peer.Holder(); bounded && !h.Proved() {
		return false
	}
	return c.profile.urgent || !c.joined || time.Since(c.connected) < c.server.newcomer
}

// request takes one request. The deadlines of the stream follow from what the client waits for then.
func (c *conn) request(r *wire.Request, log *slog.Logger) error {
	if err := c.take(r, log); err != nil {
		return err
	}
	c.joinGroup()
	now := time.Now()
	// EndResuming has no effect before the client answers. Any request may be the answer, so each sets the deadline again.
	if c.session.Resuming() && (!c.deadlines.waits(resumed) || r.Asks() && now.Sub(c.connected) < resumeMax) {
		c.deadlines.set(resumed, now.Add(resumeQuiet))
	}
	warming := c.warming()
	if c.deadlines.keep(warm, warming, now.Add(c.server.warmTime)); !warming {
		c.unmarkWaiting()
	}
	return nil
}

// take has the session take one request.
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
		s.warnings.log(log.Warn, c.warnings, "the proxy sent a request that is not allowed: ending its stream", "err", err)
		return status.Error(codes.InvalidArgument, err.Error())
	}
	before, now := c.names[kind.URL], c.session.Subscribed(kind.URL)
	lists.Put(&c.names, kind.URL, now)
	if err := s.admission.hold(c.peer, kind, before, now); err != nil {
		return err
	}
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
		if kind.Secret {
			v.Message = "it does not take a secret" // its own words may quote what is in it
		}
		s.metrics.reject(v.TypeURL, c.proxy.ID, v.Code)
		st.LastError = fmt.Sprintf("%v: %s", v.Code, shorten(v.Message, 4<<10))
		st.LastErrorAt = time.Now()
		c.countRejected(v, st.LastErrorAt)
		s.warnings.log(log.Warn, c.warnings, "the proxy rejected a response", "type", envoy.ShortType(v.TypeURL), "err", shorten(v.Message, 1<<10))
	}
	return nil
}

// shorten returns a copy of at most n bytes: a slice of the message would keep all of it.
func shorten(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return string([]byte(s[:n])) + "…"
}

// ending is how a stream ends whose Recv or Send failed: quietly when the client left.
func ending(err error) error {
	if errors.Is(err, io.EOF) || status.Code(err) == codes.Canceled {
		return nil
	}
	return err
}

// observing is the conn as its session sees it.
type observing conn

func (o *observing) Panicked(typeURL string, err error) {
	o.server.metrics.internalErrors.Inc()
	o.server.o.Logger.Error("translation failed: the proxy keeps what it has", "conn", o.id, "type", envoy.ShortType(typeURL), "err", err)
}

func (o *observing) StandIn(name string) *envoy.Resource { return o.server.standIns.of(name) }

func (o *observing) Suppressed(string) { o.server.metrics.suppressed.Inc() }
