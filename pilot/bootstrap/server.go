package bootstrap

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/rpc"
	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/pilot/archive"
	"github.com/istiod-lite/istiod-lite/pilot/authorize"
	"github.com/istiod-lite/istiod-lite/pilot/catalog"
	"github.com/istiod-lite/istiod-lite/pilot/components"
	"github.com/istiod-lite/istiod-lite/pilot/debug"
	"github.com/istiod-lite/istiod-lite/pilot/facts"
	"github.com/istiod-lite/istiod-lite/pilot/facts/dns"
	"github.com/istiod-lite/istiod-lite/pilot/facts/keysets"
	"github.com/istiod-lite/istiod-lite/pilot/ingest"
	"github.com/istiod-lite/istiod-lite/pilot/metrics"
	"github.com/istiod-lite/istiod-lite/pilot/ports"
	"github.com/istiod-lite/istiod-lite/pilot/progress"
	"github.com/istiod-lite/istiod-lite/pilot/pushes"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/pilot/status"
	"github.com/istiod-lite/istiod-lite/pilot/tracing"
	"github.com/istiod-lite/istiod-lite/pilot/translate"
	"github.com/istiod-lite/istiod-lite/pilot/ui"
	"github.com/istiod-lite/istiod-lite/pilot/xds"
	"github.com/istiod-lite/istiod-lite/pilot/xds/api"
)

// Server is the control plane.
type Server struct {
	o          Options
	components components.List
	secure     *secure   // nil without a certificate
	webhooks   *webhooks // nil unless the webhooks have a port of their own
	gateways   *gateways // nil unless this server deploys Gateways

	metrics    *prometheus.Registry
	commitTime prometheus.Histogram
	world      *ingest.World
	analyst    *ingest.Analyst
	names      dns.Resolver
	fetcher    *safe.Fetcher // fetches URLs from configuration
	keySets    *keysets.KeySets
	from       *ingest.Sources
	injection  *injection // nil if injection is disabled
	prepare    func(*snapshot.Snapshot)
	translator *translate.Translator
	authorizer *authorize.Authorizer // decides about streams, debug pages and registration
	discovery  *xds.Server
	pushes     *pushes.Log
	progress   *progress.Tracker
	debug      *debug.API
	// statusLimit bounds the writes of all statuses together.
	statusLimit *rate.Limiter
	ui          *ui.UI
	grpc        *grpc.Server
	ports       ports.Ports
	ready       atomic.Bool // the readiness probe succeeds
	serving     atomic.Bool // ADS is open; at a shutdown longer than ready

	throttle *ingest.Throttle
}

// idleResources bounds the bytes of cached resources that no proxy uses, in case that proxies reconnect.
const idleResources = 32 << 20

// newWorld returns the world of a server. event is called for each change, names resolves host names of gateways,
// others has the other providers of facts by kind, and roots is Parts.Roots of ingest. All may be nil.
func newWorld(
	o Options, event func(*kinds.Kind, string), names facts.Provider, others map[*kinds.Kind]facts.Provider, roots func(*mesh.Config) []string,
) *ingest.World {
	return ingest.New(o.Options, ingest.Parts{
		Event: event, Hosts: names, Facts: others, Roots: roots, Catalog: o.features(),
		Stages: catalog.Stages(catalog.StageOptions{
			Domain: o.Domain, Namespace: o.Namespace, Limits: o.Limits, GatewayController: o.GatewayController, GatewayClass: o.GatewayClass,
			MultiCluster: o.MultiCluster, AlphaGatewayAPI: o.AlphaGatewayAPI,
		}),
	})
}

// features returns the features that a server has.
func (o Options) features() catalog.List {
	return catalog.With(catalog.Options{
		FetchKeys: o.KeySets.Remote, SendRoots: o.Certificates.MultiRoot, Compliance: o.Compliance, AnyTrustDomain: o.AnyTrustDomain,
	})
}

// New builds a server without starting it.
func New(o Options) (*Server, error) {
	o.CountNodeAccounts = len(o.Certificates.NodeAccounts) > 0
	kept := archive.New(archive.Options{})
	o.Writes = kept
	s := &Server{
		o: o, components: components.List{Logger: o.Logger, Shutdown: o.Shutdown},
		metrics: metrics.NewRegistry(o.Version, o.Panics, time.Now()), statusLimit: status.NewLimit(float64(o.StatusRate)),
	}
	s.throttle = ingest.NewThrottle(ingest.ThrottleOptions{
		Commit: s.commit, Logger: o.Logger.With("scope", "ads"), Metrics: s.metrics, After: o.DebounceAfter, Max: o.DebounceMax,
	})
	s.names = dns.New(dns.Options{Handler: s.throttle.Add, Logger: o.Logger.With("scope", "model"), Limits: o.Limits})
	var err error
	if err := s.newKeySets(); err != nil {
		return nil, err
	}
	var roots func(*mesh.Config) []string
	if o.Certificates.MultiRoot {
		roots = s.sentRoots
	}
	s.world = newWorld(o, metrics.Events(s.metrics), s.names, map[*kinds.Kind]facts.Provider{kinds.JWKS: s.keySets}, roots)
	s.analyst = ingest.NewAnalyst(s.world)
	s.components.Observe(s.analyst)

	s.from, err = ingest.NewSources(o.Options, s.world, o.Instance(), s.metrics, s.throttle.Take)
	if err != nil {
		return nil, err
	}
	s.authorizer = authorize.New(authorize.Options{Readers: o.APIClients, SystemNamespace: o.Namespace, DebugNamespaces: o.DebugNamespaces,
		RegisterAnyone: o.RegisterAnyone, ClusterAliases: o.ClusterAliases})
	world := view{World: s.world, s: s}
	var ads xds.Options
	if o.Client != nil {
		world.secrets = ingest.NewSecretDemand(s.world, s.from)
		s.components.Join(world.secrets)
		if ads.Access, err = s.secretAccess(); err != nil {
			return nil, err
		}
	}
	if !o.NoRegistration {
		c, err := s.newRegistration(s.from)
		if err != nil {
			return nil, err
		}
		ads.Connections = c
	}
	if !o.Injection.Off {
		if s.injection, err = s.newInjection(); err != nil {
			return nil, fmt.Errorf("injection: %w", err)
		}
		s.components.Join(s.injection)
	}
	memo := idleResources
	if o.NoMemo {
		memo = 0
	}
	t := translate.New(translate.Options{Idle: memo, Now: time.Now, Features: o.features(), Found: diag.LogOnce(o.Logger)})
	s.prepare, s.translator = t.Prepare, t
	identifier, err := json.Marshal(
		map[string]any{"Component": "istiod", "ID": cmp.Or(o.PodName, "istiod"), "Info": map[string]string{"version": o.Version}},
	)
	if err != nil {
		return nil, err
	}
	ads.Translator, ads.Objects = t, api.New(o.Relay, time.Now)
	ads.Logger, ads.Metrics, ads.Limits, ads.Identifier = o.Logger.With("scope", "ads"), s.metrics, o.Limits, string(identifier)
	ads.Streams = o.Limits.Streams
	ads.NoVirtualHosts, ads.Authenticate, ads.ProofTime = o.NoVirtualHosts, s.peer, o.ProofTime
	ads.Authorizer, ads.Translations = s.authorizer, o.Limits.Generations*runtime.GOMAXPROCS(0)
	s.pushes = pushes.New(pushes.Options{})
	ads.World, ads.Pushes = world, s.pushes
	s.discovery = xds.New(ads)
	s.ports.Logger, s.ports.Limits, s.ports.Streams = o.Logger, o.Limits, s.discovery
	others := s.newReplicas()
	s.progress = s.newProgress(kept, others)
	s.debug = debug.New(debug.Options{
		Replicas: others, Name: o.Instance(), Version: o.Version,
		World: world, Server: world, Translator: t, Proxies: s.discovery, Pushes: s.pushes, Progress: s.progress,
		Authorizer:   s.authorizer,
		Authenticate: s.authenticateBearer,
		Admin:        o.AdminPages, Cluster: o.ClusterID, Domain: o.Domain, Limits: o.Limits, Profile: o.Profile,
		MultiCluster: o.MultiCluster,
	})
	s.ui = ui.New(ui.Options{
		World: world, Proxies: s.discovery, Pushes: s.pushes, Progress: s.progress, Replicas: others, Name: o.Instance(), Logger: o.Logger,
		Version: o.Version, Domain: o.Domain,
	})
	s.commitTime = metrics.CommitTime(s.metrics)
	metrics.Register(s.metrics, s.world, world, t)
	calls := rpc.New(s.metrics, o.Logger)
	s.grpc = ports.NewGRPC(o.Limits, o.keepalive(), calls)
	s.discovery.Register(s.grpc)
	if s.secure, err = s.newSecure(calls); err != nil {
		return nil, fmt.Errorf("the certificate authority: %w", err)
	}
	if s.secure != nil {
		s.discovery.Register(s.secure.grpc)
		s.components.Join(s.secure)
	}
	return s, s.register()
}

// awaited names what the server waits for before it is ready, the unread kinds of the API server, and the first reason
// why a source has not answered.
func (s *Server) awaited() []string {
	names := s.from.Awaited()
	if len(names) > 0 {
		if unread := s.from.Unread(); len(unread) > 0 {
			names = append(names, "because these are not read yet: "+strings.Join(unread, ", "))
		}
		found := s.from.Findings()
		if i := slices.IndexFunc(found, func(d diag.Diagnostic) bool {
			return slices.Contains([]string{"NotServed", "NoWatch", "ConfigSource", "SourceRejected"}, d.Code)
		}); i >= 0 {
			names = append(names, "because "+found[i].Message)
		}
	}
	if len(names) == 0 && s.secure != nil && !s.secure.Authority.Loaded() {
		names = append(names, "certificate authority")
		if found := s.secure.Authority.Findings(); len(found) > 0 {
			names = append(names, "because "+found[0].Message)
		}
	}
	if s.injection != nil && len(names) == 0 {
		if lacks := s.injection.Lacks(); lacks != "" {
			names = append(names, lacks)
		}
	}
	return names
}

// findings returns the findings about single objects.
func (s *Server) findings() []diag.Diagnostic {
	return slices.Concat(s.from.Findings(), s.world.Findings(), s.components.Findings())
}

// objectFindings returns the findings about objects, their references and their effect on proxies.
func (s *Server) objectFindings() []diag.Diagnostic {
	return slices.Concat(s.findings(), s.analyst.Findings.Get(), s.world.Located(s.translator.Findings()))
}

// allFindings returns the findings about objects and connected proxies.
func (s *Server) allFindings() []diag.Diagnostic {
	return append(s.objectFindings(), s.discovery.Findings()...)
}

// register registers the components in the order of starting.
func (s *Server) register() error {
	var later []components.Component
	for _, build := range parts {
		part, err := build(s)
		if err != nil {
			return err
		}
		if part != nil {
			later = append(later, part)
		}
	}
	s.components.Start("http listeners", s.listenHTTP)
	s.components.Background("names of gateways", s.names.Run)
	s.components.Background("keys of token issuers", s.keySets.Run)
	s.components.Background("analysis of references", s.analyst.Run)
	s.components.Background("outcomes of changes", s.progress.Run)
	if s.o.Tracer != nil {
		s.components.Background("traces of pushes", func(ctx context.Context) error {
			tracing.Run(ctx, tracing.Options{Pushes: s.pushes, Tracer: s.o.Tracer, Logger: s.o.Logger})
			return nil
		})
	}
	for _, from := range s.from.All() {
		s.components.Background(from.Name, from.Run)
	}
	s.components.Start("sources synced", s.from.Wait)
	if s.secure != nil { // after the sources, which determine the names in its own certificate
		s.components.Start("certificate authority", s.secure.Authority.Load)
		s.components.Background("certificate authority", s.secure.Authority.Run)
		s.components.Add(roots{s}) // independent of the later components, because proxies need the roots to connect
	}
	s.components.Start("discovery listener", s.listenGRPC)
	if s.injection != nil {
		s.injection.register(&s.components)
	}
	s.components.Start("webhook listener", s.listenHTTPS)
	for _, part := range later {
		s.components.Add(part)
	}
	s.components.Start("readiness", s.announce)
	return nil
}

// Run serves until ctx ends, then stops gracefully and returns nil. It fails if a component does not stop in time.
func (s *Server) Run(ctx context.Context) error {
	return s.components.Run(ctx, s.leave, s.drain)
}

// Addresses returns the addresses of the open ports.
func (s *Server) Addresses() ports.Addresses { return s.ports.Addresses() }

// listenHTTP opens the ports that serve from the beginning. The readiness probe fails until the server is ready.
func (s *Server) listenHTTP(ctx context.Context) error {
	pages, live := s.debug.Handler(), s.debug.Guard(s.ui.Handler())
	front := http.NewServeMux()
	front.HandleFunc("GET /ready", readyHandler(s.ready.Load, s.awaited))
	front.HandleFunc("GET /version", versionHandler(s.o.Version))
	monitoring := http.NewServeMux()
	monitoring.Handle(
		"GET /metrics",
		promhttp.HandlerFor(s.metrics, promhttp.HandlerOpts{ErrorLog: slog.NewLogLogger(s.o.Logger.Handler(), slog.LevelWarn)}),
	)
	monitoring.HandleFunc("GET /version", versionHandler(s.o.Version))
	monitoring.HandleFunc("GET /ready", readyHandler(s.ready.Load, s.awaited))
	if !s.o.NoDebugHTTP {
		for _, path := range []string{"/debug", "/debug/"} {
			front.Handle(path, pages)
			monitoring.Handle(path, pages)
		}
		for _, path := range []string{"/ui", "/ui/"} {
			front.Handle(path, live)
			monitoring.Handle(path, live)
		}
	}

	var handler http.Handler = front
	shared := s.o.GRPC == ""
	options := ports.HTTP{H2C: shared}
	if s.o.HTTPS == "" {
		s.mountWebhooks(front)
		options.Body = s.o.Limits.WebhookBody
	}
	if shared {
		handler = ports.Multiplex(s.grpc, s.serving.Load, front)
	}
	if err := s.ports.ServeHTTP(ctx, ports.Plain, s.o.HTTP, handler, options); err != nil {
		return err
	}
	if err := s.ports.ServeHTTP(ctx, ports.Monitoring, s.o.Monitoring, monitoring, ports.HTTP{}); err != nil {
		return err
	}
	if shared {
		s.ports.Share(ports.GRPC, ports.Plain)
	}
	return s.listenControlZ(ctx)
}

// commit commits a batch and publishes the snapshot. The first batch is the first load.
func (s *Server) commit(batch []kinds.Change, received time.Time) {
	began, last := time.Now(), s.world.Snapshot()
	s.progress.Begin(batch)
	snap := s.world.Commit(batch, received)
	s.components.Committed(batch)
	s.commitTime.Observe(time.Since(began).Seconds())
	s.progress.Commit(snap, batch, time.Now())
	if snap == last {
		return // the writes changed nothing
	}
	made := time.Now()
	safe.Run(s.o.Logger, "prepare translation", func() { s.prepare(snap) })
	s.pushes.Add(pushes.CommitOf(snap, batch, received, began, made))
	s.discovery.Publish(snap)
	switch {
	case last == nil:
		s.o.Logger.Info("configuration synced", "objects", len(s.world.Objects()), "services", snap.ServiceCount(), "dur", time.Since(began))
	case snap.Diff.Full && s.ready.Load():
		s.o.Logger.Info("configuration applied", "rev", snap.Revision, "changed", strings.Join(snap.Diff.Causes, ", "))
	}
}

// certificateFix is the remedy for a server without a certificate.
const certificateFix = "--stateDir, or a CA in ROOT_CA_DIR, or a certificate of the server's in --tlsCertFile or the Secret istiod-tls"

// listenGRPC opens ADS. The secure port needs a certificate.
func (s *Server) listenGRPC(ctx context.Context) error {
	s.serving.Store(true)
	if err := s.ports.ServeGRPC(ctx, ports.GRPC, s.o.GRPC, s.grpc); err != nil {
		return err
	}
	switch {
	case s.o.SecureGRPC == "":
		return nil
	case s.secure == nil:
		s.o.Logger.Info("the server has no certificate: the secure port does not listen", "secure_grpc", s.o.SecureGRPC, "fix", certificateFix)
		return nil
	}
	return s.ports.ServeGRPC(ctx, ports.SecureGRPC, s.o.SecureGRPC, s.secure.grpc)
}

// servers returns the gRPC servers with a port of their own.
func (s *Server) servers() (list []*grpc.Server) {
	if s.o.GRPC != "" { // gRPC cannot drain connections of an HTTP server
		list = append(list, s.grpc)
	}
	if s.secure != nil {
		list = append(list, s.secure.grpc)
	}
	return list
}

// announce makes the server ready and logs the addresses.
func (s *Server) announce(context.Context) error {
	s.ready.Store(true)
	b := s.Addresses()
	s.o.Logger.Info(
		"ready", "grpc", b.GRPC, "http", b.HTTP, "monitoring", b.Monitoring, "secure_grpc", b.SecureGRPC, "https", b.HTTPS, "version",
		s.o.Version,
	)
	if s.o.Ready != nil {
		s.o.Ready()
	}
	if s.o.AddressFile == "" {
		return nil
	}
	return b.Write(s.o.AddressFile)
}

// leave fails the readiness probe and serves on for a while, because clients still connect to a stopping pod until the
// endpoints are updated.
func (s *Server) leave() {
	was := s.ready.Swap(false)
	s.o.Logger.Info("stopping", "drain", s.o.Drain, "shutdown", s.o.Shutdown) // the keys are the names of the flags
	if was {
		time.Sleep(s.o.Drain) // a second signal ends the process
	}
	s.serving.Store(false)
	if s.o.AddressFile != "" {
		_ = os.Remove(s.o.AddressFile) // other processes may soon have these ports
	}
}

// drain lets requests finish until ctx ends, and spreads the ends of streams so that proxies do not all reconnect to
// another replica at once. Then it ends the remaining ones.
func (s *Server) drain(ctx context.Context) {
	s.debug.Close()
	s.ui.Close()
	ended := make(chan struct{})
	safe.Go(s.o.Logger, "grpc stop", func() {
		defer close(ended)
		var all sync.WaitGroup
		for _, g := range s.servers() {
			all.Add(1)
			safe.Go(s.o.Logger, "grpc stop", func() {
				defer all.Done()
				g.GracefulStop() // refuses new streams, asks clients to leave and waits for current calls
			})
		}
		all.Wait()
	})
	s.disconnectAll(ctx)
	select {
	case <-ended:
	case <-ctx.Done():
	}
	s.components.Track("the commit of changes", s.throttle.Close)
	s.components.Track("translations for proxies", s.discovery.Shutdown)
	s.components.Track("calls over gRPC", func() {
		s.grpc.Stop()
		if s.secure != nil {
			s.secure.grpc.Stop()
		}
		<-ended
	})
	s.components.Track("requests over HTTP", func() { s.ports.Close(ctx) })
}

// pace returns the time between the ends of two streams at a shutdown. It is shorter for many streams, because all must
// end in time.
const pace = 5 * time.Millisecond

func (s *Server) disconnectAll(ctx context.Context) {
	clients := s.discovery.Clients()
	if len(clients) == 0 {
		return
	}
	tick := time.NewTicker(max(min(pace, s.o.Shutdown/time.Duration(len(clients)+1)), time.Microsecond))
	defer tick.Stop()
	for _, c := range clients {
		s.discovery.Disconnect(c.ID)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
