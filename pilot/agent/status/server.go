package status

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/istiod-lite/istiod-lite/api/quota"
	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/pilot/agent/health"
)

// Options of a Server.
type Options struct {
	// Addr is host:port to listen on, such as ":15020".
	Addr string
	// EnvoyAdmin is host:port of Envoy's admin server; empty where there is no Envoy.
	EnvoyAdmin string
	// EnvoyStats is the URL of Envoy's metrics, with the path /stats/prometheus; empty if there is no Envoy, or if its
	// metrics are not merged.
	EnvoyStats string
	// AppHost is where probes and hooks reach the application: the pod's address; empty means localhost.
	AppHost string
	// Probers is the JSON of ISTIO_KUBE_APP_PROBERS, or empty.
	Probers string
	// Scraping is the JSON of ISTIO_PROMETHEUS_ANNOTATIONS: where the application's metrics are; or empty.
	Scraping string
	// Gatherer holds the agent's own metrics; nil: none.
	Gatherer prometheus.Gatherer
	// LocalMetrics serves metrics to this pod alone.
	LocalMetrics bool
	// DNSReady says whether the DNS proxy has its names; nil where there is none.
	DNSReady func() bool
	// NameTable returns the name table of the DNS proxy as JSON, or nil; nil where there is no DNS proxy.
	NameTable func() []byte
	// Patience is how long a client may take to read metrics; zero means a minute, or longer if Prometheus says so.
	Patience time.Duration
	// Quit ends the agent, at once; Drain has Envoy drain. They return without waiting.
	Quit, Drain func()
	Log         *slog.Logger
	Registerer  prometheus.Registerer

	// listen opens the port. Nil means net.ListenConfig.
	listen func(ctx context.Context, network, address string) (net.Listener, error)
	// largest bounds the bytes that are read of a source's metrics. 0 means maxEnvoy and maxApp.
	largest int64
}

// Server is port 15020. Its methods are safe for concurrent use.
type Server struct {
	o        Options
	listener net.Listener
	ready    *readiness
	http     *http.Server
}

// statsPath is the path of metrics, the agent's and Envoy's.
const statsPath = "/stats/prometheus"

const (
	readHeader = 5 * time.Second
	idle       = 2 * time.Minute
	maxHeader  = 64 << 10 // bytes of a request's
	patience   = time.Minute
	// maxConnections is how many an address of another host may have.
	maxConnections = 100
)

// New opens the port. The error names the option that is wrong.
func New(o Options) (*Server, error) {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	probers, err := parseProbers(o.Probers, o.AppHost)
	if err != nil {
		return nil, fmt.Errorf("ISTIO_KUBE_APP_PROBERS: %w", err)
	}
	s := &Server{o: o, ready: newReadiness(o)}
	listen := o.listen
	if listen == nil {
		listen = new(net.ListenConfig).Listen
	}
	if s.listener, err = listen(context.Background(), "tcp", o.Addr); err != nil {
		return nil, fmt.Errorf("status port: %w", err)
	}
	s.listener = quota.Listen(s.listener, quota.NewCounter[netip.Addr](maxConnections))
	merged, err := newMerged(o, s.listener.Addr())
	if err != nil {
		s.listener.Close()
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz/ready", s.serveReady)
	metrics := func(w http.ResponseWriter, r *http.Request) {
		// A client that does not read would hold Envoy's answer too.
		s.within(w, cmp.Or(o.Patience, max(patience, scrapeTime(r))))
		merged.ServeHTTP(w, r)
	}
	if o.LocalMetrics {
		metrics = local(metrics)
	}
	mux.HandleFunc("GET "+statsPath, metrics)
	mux.HandleFunc("GET /metrics", metrics)
	for path, p := range probers {
		mux.HandleFunc(path, s.serveProbe(p))
	}
	mux.HandleFunc("POST /quitquitquit", local(act(o.Quit)))
	mux.HandleFunc("POST /drain", local(func(w http.ResponseWriter, r *http.Request) {
		s.ready.drain()
		act(o.Drain)(w, r)
	}))
	mux.HandleFunc("GET /debug/ndsz", local(s.serveNames))
	mux.HandleFunc("GET /debug/pprof/", local(pprof.Index))
	mux.HandleFunc("GET /debug/pprof/cmdline", local(pprof.Cmdline))
	mux.HandleFunc("GET /debug/pprof/profile", local(pprof.Profile))
	mux.HandleFunc("GET /debug/pprof/symbol", local(pprof.Symbol))
	mux.HandleFunc("GET /debug/pprof/trace", local(pprof.Trace))
	s.http = &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.within(w, 0) // no longer that of the request before
			mux.ServeHTTP(w, r)
		}), ReadHeaderTimeout: readHeader, IdleTimeout: idle, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
	}
	return s, nil
}

// within gives a client that time to read an answer; 0: all the time it wants.
func (s *Server) within(w http.ResponseWriter, d time.Duration) {
	var until time.Time
	if d > 0 {
		until = time.Now().Add(d)
	}
	if err := http.NewResponseController(w).SetWriteDeadline(until); err != nil {
		s.o.Log.Debug("a connection takes no deadline", "err", err)
	}
}

// Addr returns the address that it listens on.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Ready returns nil when the proxy takes traffic, and otherwise what it waits for.
func (s *Server) Ready(ctx context.Context) error { return s.ready.check(ctx) }

// Draining makes the proxy count as not ready from now on.
func (s *Server) Draining() { s.ready.drain() }

// Run serves until ctx ends. It closes the port.
func (s *Server) Run(ctx context.Context) error {
	failed := make(chan error, 1)
	safe.Go(s.o.Log, "status", func() { failed <- s.http.Serve(s.listener) })
	select {
	case err := <-failed:
		return fmt.Errorf("status port: %w", err)
	case <-ctx.Done():
	}
	s.http.Close()
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("status port: %w", err)
	}
	return nil
}

func (s *Server) serveReady(w http.ResponseWriter, r *http.Request) {
	if err := s.Ready(r.Context()); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusOK)
}

func (s *Server) serveNames(w http.ResponseWriter, _ *http.Request) {
	var names []byte
	if s.o.NameTable != nil {
		names = s.o.NameTable()
	}
	if names == nil {
		http.Error(w, "there is no name table: DNS proxying is off, or the control plane has not sent one", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(names) // a client that has gone
}

// act serves a request by calling do.
func act(do func()) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if do == nil {
			http.Error(w, "not served here", http.StatusNotFound)
			return
		}
		w.WriteHeader(http.StatusOK)
		_, _ = w.Write([]byte("OK\n"))
		do()
	}
}

// local refuses requests that come from outside the pod, also if Envoy passes them on, and requests that a web page of
// another origin makes by a browser of this host.
func local(h http.HandlerFunc) http.HandlerFunc {
	passedOn := netip.MustParseAddr(health.SourceIPv4)
	return func(w http.ResponseWriter, r *http.Request) {
		from, err := netip.ParseAddrPort(r.RemoteAddr)
		if at := from.Addr().Unmap(); err != nil || !at.IsLoopback() || at == passedOn || !safe.NotRebound(r.Host) || safe.CrossOrigin(r) {
			http.Error(w, "only requests from localhost are allowed", http.StatusForbidden)
			return
		}
		h(w, r)
	}
}
