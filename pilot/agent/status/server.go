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
	// ProbeHTTP1 makes probes over HTTPS use HTTP/1.1 alone.
	ProbeHTTP1 bool
	// Scraping is the JSON of ISTIO_PROMETHEUS_ANNOTATIONS, which says where the application's metrics are. It may be
	// empty.
	Scraping string
	// Gatherer gathers the agent's own metrics. It may be nil.
	Gatherer prometheus.Gatherer
	// Reserved are further ports of Envoy, at which no application serves metrics. Zeros are ignored.
	Reserved []uint16
	// LocalMetrics serves metrics only to this pod.
	LocalMetrics bool
	// Names is nil without a DNS proxy.
	Names Names
	// Patience is how long a client may take to read metrics. The default is a minute, or the scrape timeout if that is
	// longer.
	Patience time.Duration
	// Agent is optional. Without it no request ends or drains anything.
	Agent      Agent
	Log        *slog.Logger
	Registerer prometheus.Registerer

	// maxSource bounds the size of a source's metrics, in bytes. Zero means maxEnvoy and maxApp.
	maxSource int64
}

// Names is the name table of a DNS proxy.
type Names interface {
	// Ready reports whether there is a name table.
	Ready() bool
	// JSON returns the name table as JSON, or nil if there is none.
	JSON() []byte
}

// Agent is the agent that the port belongs to. Its methods return without waiting.
type Agent interface {
	// Quit ends the agent.
	Quit()
	// Drain drains Envoy.
	Drain()
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
	l, err := net.Listen("tcp", o.Addr) //nolint:noctx // it does not wait
	if err != nil {
		return nil, fmt.Errorf("failed to serve the status port: %w", err)
	}
	s, err := newServer(o, l)
	if err != nil {
		l.Close()
	}
	return s, err
}

// newServer returns a Server of an open port.
func newServer(o Options, l net.Listener) (*Server, error) {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	probers, err := parseProbers(o.Probers, o.AppHost, o.ProbeHTTP1)
	if err != nil {
		return nil, fmt.Errorf("ISTIO_KUBE_APP_PROBERS: %w", err)
	}
	s := &Server{o: o, ready: newReadiness(o), listener: quota.Listen(l, quota.NewCounter[netip.Addr](maxConnections))}
	merged, err := newMerged(o, l.Addr())
	if err != nil {
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
	mux.HandleFunc("POST /quitquitquit", localOnly(s.serveQuit))
	mux.HandleFunc("POST /drain", localOnly(s.serveDrain))
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
	if s.o.Names != nil {
		names = s.o.Names.JSON()
	}
	if names == nil {
		http.Error(w, "there is no name table: DNS proxying is off, or the control plane has not sent one", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(names) // the client may have gone
}

func (s *Server) serveQuit(w http.ResponseWriter, _ *http.Request) {
	if s.accept(w) {
		s.o.Agent.Quit()
	}
}

func (s *Server) serveDrain(w http.ResponseWriter, _ *http.Request) {
	s.ready.drain()
	if s.accept(w) {
		s.o.Agent.Drain()
	}
}

// accept answers a request to the agent. It returns false if there is no agent.
func (s *Server) accept(w http.ResponseWriter) bool {
	if s.o.Agent == nil {
		http.Error(w, "this agent does not support the request", http.StatusNotFound)
		return false
	}
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write([]byte("OK\n"))
	return true
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
