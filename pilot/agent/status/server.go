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

// Options configure a Server.
type Options struct {
	// Addr is the HOST:PORT to listen on, such as ":15020".
	Addr string
	// EnvoyAdmin is the HOST:PORT of Envoy's admin API. It is empty without an Envoy.
	EnvoyAdmin string
	// EnvoyStats is the URL of Envoy's metrics, with the path /stats/prometheus. It is empty if Envoy's metrics are not
	// merged.
	EnvoyStats string
	// AppHost is the host at which probes and hooks reach the application, the pod's address. The default is localhost.
	AppHost string
	// Probers is the JSON of ISTIO_KUBE_APP_PROBERS. It may be empty.
	Probers string
	// Scraping is the JSON of ISTIO_PROMETHEUS_ANNOTATIONS, which says where the application's metrics are. It may be
	// empty.
	Scraping string
	// Gatherer gathers the agent's own metrics. It may be nil.
	Gatherer prometheus.Gatherer
	// LocalMetrics serves metrics only to this pod.
	LocalMetrics bool
	// DNSReady reports whether the DNS proxy has a name table. It is nil without a DNS proxy.
	DNSReady func() bool
	// NameTable returns the name table of the DNS proxy as JSON, or nil if there is none yet. It is nil without a DNS
	// proxy.
	NameTable func() []byte
	// Patience is how long a client may take to read metrics. The default is a minute, or the scrape timeout if that is
	// longer.
	Patience time.Duration
	// Quit ends the agent. Drain drains Envoy. Both return without waiting.
	Quit, Drain func()
	Log         *slog.Logger
	Registerer  prometheus.Registerer

	// listen opens the port. The default is the method Listen of net.ListenConfig.
	listen func(ctx context.Context, network, address string) (net.Listener, error)
	// maxSource bounds the size of a source's metrics, in bytes. Zero means maxEnvoy and maxApp.
	maxSource int64
}

// Server serves the status port, 15020. It is safe for concurrent use.
type Server struct {
	o        Options
	listener net.Listener
	ready    *readiness
	http     *http.Server
}

// statsPath is the path of metrics, both of the agent and of Envoy.
const statsPath = "/stats/prometheus"

const (
	readHeader = 5 * time.Second
	idle       = 2 * time.Minute
	maxHeader  = 64 << 10 // bytes
	patience   = time.Minute
	// maxConnections is the maximum number of connections from one address of another host.
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
		return nil, fmt.Errorf("failed to serve the status port: %w", err)
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
		// A client that does not read would block Envoy's response too.
		s.setWriteTimeout(w, cmp.Or(o.Patience, max(patience, scrapeTime(r))))
		merged.ServeHTTP(w, r)
	}
	if o.LocalMetrics {
		metrics = localOnly(metrics)
	}
	mux.HandleFunc("GET "+statsPath, metrics)
	mux.HandleFunc("GET /metrics", metrics)
	for path, p := range probers {
		mux.HandleFunc(path, s.serveProbe(p))
	}
	mux.HandleFunc("POST /quitquitquit", localOnly(trigger(o.Quit)))
	mux.HandleFunc("POST /drain", localOnly(func(w http.ResponseWriter, r *http.Request) {
		s.ready.drain()
		trigger(o.Drain)(w, r)
	}))
	mux.HandleFunc("GET /debug/ndsz", localOnly(s.serveNames))
	mux.HandleFunc("GET /debug/pprof/", localOnly(pprof.Index))
	mux.HandleFunc("GET /debug/pprof/cmdline", localOnly(pprof.Cmdline))
	mux.HandleFunc("GET /debug/pprof/profile", localOnly(pprof.Profile))
	mux.HandleFunc("GET /debug/pprof/symbol", localOnly(pprof.Symbol))
	mux.HandleFunc("GET /debug/pprof/trace", localOnly(pprof.Trace))
	s.http = &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.setWriteTimeout(w, 0) // the last request on the connection may have set one
			mux.ServeHTTP(w, r)
		}), ReadHeaderTimeout: readHeader, IdleTimeout: idle, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
	}
	return s, nil
}

// setWriteTimeout limits the time that a client may take to read the response. Zero removes the limit.
func (s *Server) setWriteTimeout(w http.ResponseWriter, d time.Duration) {
	var until time.Time
	if d > 0 {
		until = time.Now().Add(d)
	}
	if err := http.NewResponseController(w).SetWriteDeadline(until); err != nil {
		s.o.Log.Debug("failed to set a write deadline", "err", err)
	}
}

// Addr returns the address that the server listens on.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Ready returns nil if the proxy accepts traffic, and otherwise an error that says what is missing.
func (s *Server) Ready(ctx context.Context) error { return s.ready.check(ctx) }

// Draining makes the proxy unready from now on.
func (s *Server) Draining() { s.ready.drain() }

// Run serves until ctx ends, and then closes the port.
func (s *Server) Run(ctx context.Context) error {
	failed := make(chan error, 1)
	safe.Go(s.o.Log, "status", func() { failed <- s.http.Serve(s.listener) })
	select {
	case err := <-failed:
		return fmt.Errorf("failed to serve the status port: %w", err)
	case <-ctx.Done():
	}
	s.http.Close()
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("failed to serve the status port: %w", err)
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
	_, _ = w.Write(names) // the client may have gone
}

// trigger returns a handler that calls fn.
func trigger(fn func()) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if fn == nil {
			http.Error(w, "this agent does not support the request", http.StatusNotFound)
			return
		}
		w.WriteHeader(http.StatusOK)
		_, _ = w.Write([]byte("OK\n"))
		fn()
	}
}

// localOnly refuses requests from outside of the pod, including requests that Envoy forwards, and requests of web pages
// of another origin in a browser on this host.
func localOnly(h http.HandlerFunc) http.HandlerFunc {
	viaEnvoy := netip.MustParseAddr(health.SourceIPv4)
	return func(w http.ResponseWriter, r *http.Request) {
		from, err := netip.ParseAddrPort(r.RemoteAddr)
		if address := from.Addr().Unmap(); err != nil || !address.IsLoopback() || address == viaEnvoy || !safe.NotRebound(r.Host) ||
			safe.CrossOrigin(r) {
			http.Error(w, "only requests from localhost are allowed", http.StatusForbidden)
			return
		}
		h(w, r)
	}
}
