package ports

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/safe"
)

// HTTP configures an HTTP server.
type HTTP struct {
	H2C   bool        // also serve HTTP/2 without TLS, with the connection bounds of streams
	TLS   *tls.Config // TLS configuration; nil for plaintext
	Body  int64       // largest body of a request in bytes; 0 for Limits.HTTPBody
	Conns int         // most connections of one address; 0 for no bound
}

// newHTTP returns an HTTP server with a time limit for every phase of a request.
func newHTTP(logger *slog.Logger, l limits.Limits, handler http.Handler, o HTTP) *http.Server {
	l.HTTPBody = cmp.Or(o.Body, l.HTTPBody)
	s := &http.Server{
		Handler:           guarded(logger, l, handler),
		ReadHeaderTimeout: l.HTTPReadHeader,
		ReadTimeout:       l.HTTPRead,
		WriteTimeout:      l.HTTPWrite,
		IdleTimeout:       l.HTTPIdle,
		MaxHeaderBytes:    l.HTTPHeader,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelDebug), // errors of clients
	}
	if o.H2C { // by prior knowledge: an Upgrade, which has been used to smuggle requests, is not accepted
		s.Protocols = new(http.Protocols)
		s.Protocols.SetHTTP1(true)
		s.Protocols.SetUnencryptedHTTP2(true)
	}
	if o.H2C || o.TLS != nil {
		s.TLSConfig = o.TLS
		s.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: int(l.StreamsPerConn), PingTimeout: 10 * time.Second, SendPingTimeout: 30 * time.Second}
	}
	return s
}

// guarded bounds the body of requests, and turns a panic into a 500 response.
func guarded(logger *slog.Logger, l limits.Limits, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isGRPC(r) {
			r.Body = http.MaxBytesReader(w, r.Body, l.HTTPBody)
		}
		p := safe.Do("http handler", func() { next.ServeHTTP(w, r) })
		switch {
		case p == nil:
		case errors.Is(p, http.ErrAbortHandler):
			panic(http.ErrAbortHandler) // a handler closes its connection in this way
		default:
			logger.Error("recovered from a panic", "path", r.URL.Path, "err", p, "stack", string(p.(*safe.Panic).Stack))
			http.Error(w, "internal error", http.StatusInternalServerError)
		}
	})
}

// isGRPC reports whether a request is gRPC.
func isGRPC(r *http.Request) bool {
	return r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc")
}

// Multiplex passes gRPC requests to g and all other requests to next. Until serving returns true, it answers gRPC with
// Unavailable.
func Multiplex(g *grpc.Server, serving func() bool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isGRPC(r) {
			next.ServeHTTP(w, r)
			return
		}
		if !serving() {
			w.Header().Set("Content-Type", "application/grpc")
			w.Header().Set("Grpc-Status", "14")
			w.Header().Set("Grpc-Message", "not ready")
			return
		}
		// A stream has no deadline. The deadlines of the connection are for other requests.
		c := http.NewResponseController(w)
		_ = c.SetReadDeadline(time.Time{})
		_ = c.SetWriteDeadline(time.Time{})
		g.ServeHTTP(w, r)
	})
}

// httpServing is an HTTP server and its port.
type httpServing struct {
	listener net.Listener
	server   *http.Server
}

func (s *httpServing) serve() error {
	serve := s.server.Serve
	if s.server.TLSConfig != nil {
		serve = func(l net.Listener) error { return s.server.ServeTLS(l, "", "") }
	}
	if err := serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// close lets current requests finish until ctx ends.
func (s *httpServing) close(ctx context.Context) {
	if s.server.Shutdown(ctx) != nil {
		_ = s.server.Close()
	}
}
