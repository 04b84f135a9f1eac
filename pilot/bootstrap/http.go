package bootstrap

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
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

// httpOptions are how an HTTP server differs from one that speaks HTTP/1 alone.
type httpOptions struct {
	h2c  bool        // it speaks HTTP/2 without TLS too, to clients that know beforehand
	tls  *tls.Config // it speaks nothing without TLS; nil: it speaks no TLS
	body int64       // bound on the body of one request; 0: Limits.HTTPBody
	most int         // bound on the connections of one address; 0: there is none
}

// newHTTP makes an HTTP server with a bound on every phase of a request.
func newHTTP(logger *slog.Logger, l limits.Limits, handler http.Handler, o httpOptions) *http.Server {
	l.HTTPBody = cmp.Or(o.body, l.HTTPBody)
	s := &http.Server{
		Handler:           guarded(logger, l, handler),
		ReadHeaderTimeout: l.HTTPReadHeader,
		ReadTimeout:       l.HTTPRead,
		WriteTimeout:      l.HTTPWrite,
		IdleTimeout:       l.HTTPIdle,
		MaxHeaderBytes:    l.HTTPHeader,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelDebug), // what clients do wrong
	}
	if o.h2c {
		s.Protocols = new(http.Protocols)
		s.Protocols.SetHTTP1(true)
		s.Protocols.SetUnencryptedHTTP2(true)
	}
	if o.h2c || o.tls != nil {
		s.TLSConfig = o.tls
		s.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: int(l.StreamsPerConn), PingTimeout: 10 * time.Second, SendPingTimeout: 30 * time.Second}
	}
	return s
}

// guarded bounds the body and turns a panic into a 500.
func guarded(logger *slog.Logger, l limits.Limits, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isGRPC(r) {
			r.Body = http.MaxBytesReader(w, r.Body, l.HTTPBody)
		}
		p := safe.Do("http handler", func() { next.ServeHTTP(w, r) })
		switch {
		case p == nil:
		case errors.Is(p, http.ErrAbortHandler):
			panic(http.ErrAbortHandler) // how a handler closes its connection
		default:
			logger.Error("a request panicked", "path", r.URL.Path, "err", p, "stack", string(p.(*safe.Panic).Stack))
			http.Error(w, "internal error", http.StatusInternalServerError)
		}
	})
}

// isGRPC reports whether a request is gRPC.
func isGRPC(r *http.Request) bool {
	return r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc")
}

// multiplex passes gRPC requests to g and all others to next. While not serving, it answers gRPC with Unavailable.
func multiplex(g *grpc.Server, serving func() bool, next http.Handler) http.Handler {
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
		// A stream has no end; the deadlines of the connection are for other requests.
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

// close lets requests in progress end until ctx does.
func (s *httpServing) close(ctx context.Context) {
	if s.server.Shutdown(ctx) != nil {
		_ = s.server.Close()
	}
}

// readyHandler answers the readiness probe.
func readyHandler(ready func() bool, awaited func() []string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if !ready() {
			text := "not ready"
			if names := awaited(); len(names) > 0 {
				text += ": waiting for " + strings.Join(names, ", ")
			}
			http.Error(w, text, http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusOK)
	}
}

// versionHandler answers like istiod: the version as text.
func versionHandler(version string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Accept"), "application/json") {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(map[string]any{"clientVersion": map[string]string{"version": version}})
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte(version))
	}
}
