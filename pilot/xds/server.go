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

// Translator makes what proxies are sent.
type Translator interface {
	session.Translator

	// Compare reports whether more may differ from the snapshot before than Live types and the configuration of
	// proxies whose workload changed.
	Compare(s *snapshot.Snapshot) bool

	// ReassignsOnly reports whether proxies may belong to other cohorts than at the snapshot before, and nothing else
	// differs: what a cohort is sent is the same.
	ReassignsOnly(s *snapshot.Snapshot) bool

	// Bytes returns about how many bytes are kept for some cohorts, beside what the first of them has as well.
	Bytes(cohorts []cohort.Key) int
}

// Options of a Server. Only Translator is needed.
type Options struct {
	Translator   Translator
	Objects      session.Translator // makes what readers of configuration are sent; nil: Translator does
	Logger       *slog.Logger
	Metrics      prometheus.Registerer
	Limits       limits.Limits // the zero value stands for the defaults
	Identifier   string        // control_plane.identifier of every response
	Translations int           // how many translations run at a time; 0: one for each CPU
	Streams      int           // how many streams are served at a time, more wait; 0: no bound
	Connections  Connections   // nil: nobody is notified
	// NoVirtualHosts sends every proxy its route configurations whole, also those that take virtual hosts by
	// themselves.
	NoVirtualHosts bool
	// Authenticate returns who is at the other end of a stream. Its error is a gRPC status. Nil: the peer's address is
	// all that is known.
	Authenticate func(context.Context) (identity.Peer, error)
	ProofTime    time.Duration         // how long a stream goes on at most after its peer's proof was revoked; 0 is a minute
	World        World                 // optional: Standalone
	Access       Access                // who may have the secrets of its namespace; nil: every peer of the namespace
	Authorizer   *authorize.Authorizer // who may open which stream; nil: as by the zero authorize.Options
	Pushes       *pushes.Log           // optional: records what is sent because of each push
}

// Server is the DiscoveryServer. Its methods may be called from any goroutine.
type Server struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer

	o           Options // with the defaults
	metrics     *metrics
	encoder     *wire.Encoder
	lookups     *rate.Limiter // of sources
	demand      demand
	standIns    standIns
	differences diff.Cache
	interner    *wire.Interner
	warnings    *logLimiter // for faults of clients
	arrivals    *logLimiter // for streams that begin and end
	noticed     noticed
	newcomer    time.Duration
	warmTime    time.Duration
	podWait     time.Duration
	slots       chan struct{}                                // one taken by each translation; senders on a channel are served in order
	urgentSlot  chan struct{}                                // one more, for urgent streams
	turns       *quota.Table[identity.Holder, chan struct{}] // of each identity or address, one taken by each of its streams that waits for a slot or has one
	debugging   *quota.Slots[identity.Holder]                // for answers to tools that are made or have not been read
	admission   *admission
	listeners   *accepted
	numbers     atomic.Uint64
	running     sync.WaitGroup // goroutines of streams
	closing     chan struct{}  // closed by Shutdown

	mu     sync.Mutex                       // taken before conn.mu and after subscriberGroup.mu
	latest *snapshot.Snapshot               // nil before the first Publish
	tally  *pushes.Tally                    // of latest, or nil
	conns  map[string]*conn                 // by id
	groups map[session.Key]*subscriberGroup // with members
	count  map[string]int                   // streams by the proxy's id
	// those that cannot start without certificates, with a cluster that wants them
	waiting map[*conn]string
	closed  bool
}

// New makes a Server that answers Unavailable until the first Publish.
func New(o Options) *Server {
	o.ProofTime, o.Limits = cmp.Or(o.ProofTime, proofTime), cmp.Or(o.Limits, limits.Default())
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
		o:        o,
		metrics:  newMetrics(o.Metrics),
		encoder:  wire.NewEncoder(o.Identifier),
		lookups:  rate.NewLimiter(maxLookups, maxLookups),
		interner: wire.NewInterner(),
		warnings: newLogLimiter(),
		arrivals: newLogLimiter(),
		newcomer: newcomer,
		warmTime: warmTime,
		podWait:  workloadWait,
		conns:    map[string]*conn{},
		groups:   map[session.Key]*subscriberGroup{},
		count:    map[string]int{},
		waiting:  map[*conn]string{},
		closing:  make(chan struct{}),
	}
	s.slots, s.urgentSlot = make(chan struct{}, o.Translations), make(chan struct{}, 1)
	s.turns = quota.NewTable[identity.Holder](func() chan struct{} { return make(chan struct{}, o.Translations+1) })
	s.debugging = quota.NewSlots[identity.Holder](s.o.Limits.DebugAnswers, quota.Share(s.o.Limits.DebugAnswers))
	s.metrics.groups(func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.groups)
	})
	s.admission, s.listeners = newAdmission(o.Streams, &s.o.Limits, s.metrics), newAccepted(s.o.Limits.ConnectionsPerSource)
	return s
}

// Register offers the service. The gRPC server should be made with MaxRecvMsgSize of the limits, and serve listeners
// from Listen.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(r, s)
}

// Listen tracks the connections that l accepts, so that one whose peer does not read can be closed: ending the stream
// alone would queue its trailers behind the blocked data and free nothing.
func (s *Server) Listen(l net.Listener) net.Listener { return s.listeners.wrap(l) }

// Publish makes a snapshot the newest and lets every stream know. It never waits for one. Snapshots are published in
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
	since := snap.Revision
	if s.latest != nil {
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
}

// Push has every stream compare what it has with the newest snapshot.
func (s *Server) Push() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.latest != nil {
		p := s.fullPush()
		p.Triggers = map[string]int{"debug": 1}
		s.wake(p, func(*conn) bool { return true })
	}
}

// fullPush makes a push of the newest snapshot for which a stream compares all that it has. mu is held.
func (s *Server) fullPush() *session.Push {
	p := session.NewFullPush(s.latest, time.Now())
	p.Tally = s.tally
	return p
}

// newestPush is fullPush for who does not hold mu.
func (s *Server) newestPush() *session.Push {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fullPush()
}

// wake offers a push to streams, to urgent ones first. mu is held.
func (s *Server) wake(p *session.Push, which func(*conn) bool) {
	for _, urgent := range []bool{true, false} {
		for _, c := range s.conns {
			if c.profile.urgent == urgent && which(c) {
				c.offer(p)
			}
		}
	}
}

// Shutdown ends all streams with Unavailable, refuses new ones, and returns when the goroutines of all have ended.
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

// serve runs one stream to its end. A panic ends the stream and nothing else.
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
			_ = s.admission.hold(peer, envoy.TypeOf(url), names, nil) // no error: it holds less
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
	safe.Run(s.o.Logger.With("conn", c.id), "xds stream", func() { err = c.run(); panicked = false })
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

// newest is the newest snapshot. Whatever was published before it waits at the streams already.
func (s *Server) newest() *snapshot.Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.latest
}

// add registers a stream and returns the snapshot that it starts from; later ones are offered to it.
func (s *Server) add(c *conn) (*snapshot.Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errShutdown()
	}
	s.conns[c.id] = c
	s.count[c.proxy.ID]++
	c.version = s.metrics.connect(c.proxy.Version)
	return s.latest, nil
}

func (s *Server) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns[c.id] != c {
		return
	}
	delete(s.conns, c.id)
	delete(s.waiting, c)
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

// spawn runs fn in a goroutine that Shutdown waits for. false: the server is shutting down.
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

// streams returns all streams, by id.
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
