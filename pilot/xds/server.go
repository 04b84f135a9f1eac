package xds

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/quota"
	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/pilot/authorize"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/pushes"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/pilot/xds/diff"
	"github.com/istiod-lite/istiod-lite/pilot/xds/session"
	"github.com/istiod-lite/istiod-lite/pilot/xds/wire"
)

// Translator makes the resources that proxies are sent.
type Translator interface {
	session.Translator

	// Compare reports whether a snapshot may change more than Live types and the configuration of proxies whose
	// workload changed.
	Compare(s *snapshot.Snapshot) bool

	// ReassignsOnly reports whether a snapshot may move proxies to other cohorts and changes nothing else. Then the
	// resources of each cohort are unchanged.
	ReassignsOnly(s *snapshot.Snapshot) bool

	// Bytes returns the approximate number of bytes that are kept for cohorts, excluding what the first of them shares.
	Bytes(cohorts []cohort.Key) int
}

// Options configure a Server. Only Translator is required.
type Options struct {
	Translator   Translator
	Objects      session.Translator // makes the objects for readers of configuration; default Translator
	Logger       *slog.Logger
	Metrics      prometheus.Registerer
	Limits       limits.Limits // limits; the zero value means the defaults
	Identifier   string        // control_plane.identifier of every response
	Translations int           // concurrent translations; 0 for one per CPU
	Streams      int           // concurrent streams, others wait; 0 for no bound
	Connections  Connections   // optional
	// NoVirtualHosts disables on-demand virtual hosts: every proxy is sent whole route configurations.
	NoVirtualHosts bool
	// Authenticate identifies the peer of a stream. It fails with a gRPC status. If it is nil, only the peer's address
	// is known.
	Authenticate func(context.Context) (identity.Peer, error)
	// ProofTime bounds how long a stream lives after its peer's credential was revoked. 0 means a minute.
	ProofTime time.Duration
	World     World // optional; default Standalone
	// Access decides which peers may have the secrets of their namespace. Nil if every peer of the namespace may.
	Access Access
	// Authorizer decides which peer may open which stream. Nil for the zero authorize.Options.
	Authorizer *authorize.Authorizer
	Pushes     *pushes.Log // optional; records the responses of each push
}

// Server is the discovery server. Its methods are safe for concurrent use.
type Server struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer

	o           Options // with defaults
	metrics     *metrics
	encoder     *wire.Encoder
	lookups     *rate.Limiter // bounds look-ups of the sources of rejected resources
	demand      demand
	standIns    standIns
	differences diff.Cache
	interner    *wire.Interner
	warnings    *logLimiter // log lines about faulty clients
	arrivals    *logLimiter // log lines about the begin and end of streams
	noticed     noticed
	newcomer    time.Duration
	warmTime    time.Duration
	podWait     time.Duration
	lagTime     time.Duration
	slots       chan struct{} // taken by translations; waiting senders are served in order
	urgentSlot  chan struct{} // one additional slot for urgent streams
	// turns has the turns of each identity or address. Each stream that waits for a slot or has one takes a turn.
	turns     *quota.Table[identity.Holder, chan struct{}]
	debugging *quota.Slots[identity.Holder] // responses to tools that are being made or read
	admission *admission
	listeners *accepted
	numbers   atomic.Uint64
	running   sync.WaitGroup // goroutines of streams
	closing   chan struct{}  // closed by Shutdown

	offered atomic.Uint64 // newest revision that was offered to all streams and groups

	mu     sync.Mutex                       // acquired before conn.mu and subscriberGroup.mu
	latest *snapshot.Snapshot               // nil before the first Publish
	tally  *pushes.Tally                    // tally of latest, or nil
	conns  map[string]*conn                 // by ID
	groups map[session.Key]*subscriberGroup // with members
	count  map[string]int                   // number of streams by proxy ID
	// departures are the proxies that have left lately.
	departures departures
	missing    missing
	resumed    bool // a client of an earlier process, or of another server, has connected
	// withoutCertificates has the streams of Envoys that cannot start without certificates, with a cluster that wants
	// them.
	withoutCertificates map[*conn]string
	closed              bool
}

// New returns a Server that refuses streams with Unavailable until the first Publish.
func New(o Options) *Server {
	o.ProofTime, o.Limits = cmp.Or(o.ProofTime, reauthenticateTime), cmp.Or(o.Limits, limits.Default())
	if o.Objects == nil {
		o.Objects = o.Translator
	}
	if o.World == nil {
		o.World = Standalone{}
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.Authorizer = cmp.Or(o.Authorizer, authorize.New(authorize.Options{}))
	if o.Translations <= 0 {
		o.Translations = runtime.GOMAXPROCS(0)
	}
	s := &Server{
		o:                   o,
		metrics:             newMetrics(o.Metrics),
		encoder:             wire.NewEncoder(o.Identifier),
		lookups:             rate.NewLimiter(maxLookups, maxLookups),
		interner:            wire.NewInterner(),
		warnings:            newLogLimiter(),
		arrivals:            newLogLimiter(),
		newcomer:            newcomer,
		warmTime:            warmTime,
		podWait:             workloadWait,
		lagTime:             lagTime,
		conns:               map[string]*conn{},
		groups:              map[session.Key]*subscriberGroup{},
		count:               map[string]int{},
		withoutCertificates: map[*conn]string{},
		closing:             make(chan struct{}),
	}
	s.slots, s.urgentSlot = make(chan struct{}, o.Translations), make(chan struct{}, 1)
	s.turns = quota.NewTable[identity.Holder](func() chan struct{} { return make(chan struct{}, o.Translations+1) })
	s.debugging = quota.NewSlots[identity.Holder](s.o.Limits.DebugAnswers, quota.Share(s.o.Limits.DebugAnswers))
	s.metrics.behind(s.lagging)
	s.metrics.groups(func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.groups)
	})
	s.admission, s.listeners = newAdmission(o.Streams, &s.o.Limits, s.metrics, s.o.Logger), newAccepted(s.o.Limits.ConnectionsPerSource)
	return s
}

// Register registers the service. The gRPC server should have the MaxRecvMsgSize of the limits, and serve listeners
// from Listen.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(r, s)
}

// Listen tracks the connections that l accepts, so that the connection of a peer that does not read can be closed.
// Ending the stream alone would queue its trailers behind the blocked data and free nothing.
func (s *Server) Listen(l net.Listener) net.Listener { return s.listeners.wrap(l) }

// Publish makes a snapshot the newest and notifies every stream without waiting for any. Snapshots must be published in
// order.
func (s *Server) Publish(snap *snapshot.Snapshot) {
	p := session.NewPush(snap, time.Now())
	p.Tally = s.o.Pushes.Tally(snap.Revision)
	if err := safe.Do("compare snapshots", func() {
		p.Full = p.Full || s.o.Translator.Compare(snap)
		p.ReassignsOnly = s.o.Translator.ReassignsOnly(snap)
	}); err != nil {
		p.Full = true
	}
	s.differences.Forget()
	s.interner.Forget()
	s.mu.Lock()
	since, first := snap.Revision, s.latest == nil
	if !first {
		since = s.latest.Revision
	}
	s.latest, s.tally = snap, p.Tally
	s.wake(p, func(c *conn) bool {
		if c.group == nil {
			return true
		}
		concerned := p.MayReassign(c.profile.translator, c.proxy, c.cohort, since)
		if concerned {
			c.notified.add(since, snap.Revision)
		}
		return concerned
	})
	groups := slices.Collect(maps.Values(s.groups))
	s.mu.Unlock()
	for _, a := range groups {
		a.offer(p)
	}
	s.offered.Store(snap.Revision)
	if first {
		s.Expect()
	}
}

// Push makes every stream compare its resources with the newest snapshot.
func (s *Server) Push() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.latest != nil {
		p := s.fullPush()
		p.Triggers = map[string]int{"debug": 1}
		s.wake(p, func(*conn) bool { return true })
	}
}

// fullPush returns a push of the newest snapshot for which a stream compares all its resources. By itself it is not
// because of any revision. The caller holds mu.
func (s *Server) fullPush() *session.Push {
	p := session.NewFullPush(s.latest, time.Now())
	p.First, p.Tally = s.latest.Revision+1, s.tally
	return p
}

// newestPush is fullPush for callers that do not hold mu.
func (s *Server) newestPush() *session.Push {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fullPush()
}

// wake offers a push to the selected streams, urgent ones first. The caller holds mu.
func (s *Server) wake(p *session.Push, which func(*conn) bool) {
	for _, urgent := range []bool{true, false} {
		for _, c := range s.conns {
			if c.profile.urgent == urgent && which(c) {
				c.offer(p)
			}
		}
	}
}

// Shutdown ends all streams with Unavailable, refuses new ones, and waits for the goroutines of all streams.
func (s *Server) Shutdown() {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.closing)
	}
	for _, c := range s.conns {
		c.end(errShutdown())
	}
	s.mu.Unlock()
	s.running.Wait()
}

// StreamAggregatedResources serves a state-of-the-world stream.
func (s *Server) StreamAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	return s.serve(stream, false)
}

// DeltaAggregatedResources serves a delta stream.
func (s *Server) DeltaAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	return s.serve(stream, true)
}

// serve serves one stream until it ends. A panic ends only this stream.
func (s *Server) serve(stream grpc.ServerStream, delta bool) error {
	ctx := stream.Context()
	if err := s.ready(); err != nil {
		return err
	}
	peer, err := s.authenticate(ctx)
	if err != nil {
		return err
	}
	leave, err := s.admission.enter(ctx, peer, s.closing)
	if err != nil {
		return err
	}
	defer leave()
	c := newConn(s, stream, delta, peer)
	defer func() {
		for url, names := range c.names {
			_ = s.admission.hold(peer, envoy.TypeOf(url), names, nil) // releasing names cannot fail
		}
	}()
	if h, bounded := peer.Holder(); bounded {
		turns, release := s.turns.Hold(h)
		defer release()
		cohorts, leave := s.admission.cohorts.Hold(h)
		defer leave()
		tenant, leaveTenant := s.admission.tenants.cohorts.Hold(h.Tenant())
		defer leaveTenant()
		c.turns, c.cohorts, c.tenant = turns, cohorts, tenant
	}
	panicked := true
	safe.Run(s.o.Logger.With("address", c.remote), "xds stream", func() { err = c.run(); panicked = false })
	if panicked {
		s.metrics.internalErrors.Inc()
		return status.Error(codes.Internal, "internal error")
	}
	return err
}

func errShutdown() error { return status.Error(codes.Unavailable, "the server is shutting down") }

func (s *Server) ready() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return errShutdown()
	case s.latest == nil:
		return status.Error(codes.Unavailable, "the server has not synced yet")
	}
	return nil
}

// newest returns the newest snapshot. Every stream has already been offered the snapshots before it.
func (s *Server) newest() *snapshot.Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.latest
}

// add registers a stream and returns its first snapshot. Later ones are offered to it.
func (s *Server) add(c *conn) (*snapshot.Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errShutdown()
	}
	s.conns[c.id] = c
	s.count[c.proxy.ID]++
	c.version = s.metrics.connect(c.proxy.Version)
	c.first = s.latest.Revision
	return s.latest, nil
}

func (s *Server) remove(c *conn) {
	left, expected := c.departs()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns[c.id] != c {
		return
	}
	delete(s.conns, c.id)
	delete(s.withoutCertificates, c)
	if expected && !s.closed {
		s.depart(c, left)
	} else {
		s.departures.ended(c.proxy)
	}
	s.leaveGroup(c)
	c.cohorts.move(c.cohort, cohort.Key{})
	c.tenant.move(c.cohort, cohort.Key{})
	s.count[c.proxy.ID]--
	last := s.count[c.proxy.ID] == 0
	if last {
		delete(s.count, c.proxy.ID)
	}
	s.metrics.disconnect(c.version, c.proxy.ID, last)
}

// spawn runs fn in a goroutine that Shutdown waits for. It returns false if the server is shutting down.
func (s *Server) spawn(name string, fn func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.running.Add(1)
	safe.Go(s.o.Logger, name, func() {
		defer s.running.Done()
		fn()
	})
	return true
}

// streams returns all streams, sorted by proxy ID and number.
func (s *Server) streams() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]*conn, 0, len(s.conns))
	for _, c := range s.conns {
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b *conn) int {
		return cmp.Or(cmp.Compare(a.proxy.ID, b.proxy.ID), cmp.Compare(a.number, b.number))
	})
	return list
}

func addresses(ctx context.Context) (remote, local string) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return "", ""
	}
	if p.Addr != nil {
		remote = p.Addr.String()
	}
	if p.LocalAddr != nil {
		local = p.LocalAddr.String()
	}
	return remote, local
}
