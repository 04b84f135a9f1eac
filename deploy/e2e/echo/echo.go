package echo

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
)

// Header is the gRPC response metadata with the name of the server that answered.
const Header = "echo-name"

// callTimeout is the limit of one call to another service.
const callTimeout = 10 * time.Second

// Answer describes a server, and the servers that it called.
type Answer struct {
	Name     string `json:"name"`
	Version  string `json:"version,omitempty"`
	Protocol string `json:"protocol"`
	Path     string `json:"path"`
	// Headers are the request headers that the query names, as in ?header=x-a&header=host.
	Headers map[string]string `json:"headers,omitempty"`
	Calls   []Answer          `json:"calls,omitempty"`
	Error   string            `json:"error,omitempty"`
}

// Options describe the server.
type Options struct {
	Name    string
	Version string
	// Calls are URLs to get before each answer.
	Calls []string
	// Transport carries the calls.
	Transport http.RoundTripper
}

// Server answers requests.
type Server struct {
	o    Options
	http *http.Server
}

// New returns a server.
func New(o Options) *Server {
	s := &Server{o: o}
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	rpc := s.grpc()
	s.http = &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
				rpc.ServeHTTP(w, r)
				return
			}
			s.answer(w, r)
		}),
		Protocols:         &protocols,
		ReadHeaderTimeout: callTimeout,
		ErrorLog:          log.New(io.Discard, "", 0),
	}
	return s
}

// ServeHTTP serves HTTP/1.1, HTTP/2 by prior knowledge and gRPC until the listener is closed or the server stops.
func (s *Server) ServeHTTP(l net.Listener) error { return s.http.Serve(l) }

// ServeHTTPS is ServeHTTP over TLS. The configuration says which protocols are offered.
func (s *Server) ServeHTTPS(l net.Listener, config *tls.Config) error {
	return s.http.Serve(tls.NewListener(l, config))
}

// Stop waits for running requests, and closes the remaining connections when the context ends.
func (s *Server) Stop(ctx context.Context) {
	if err := s.http.Shutdown(ctx); err != nil {
		s.http.Close()
	}
}

// ServeTCP answers every line with the server's name and the line, until the listener is closed. That closes its
// connections too.
func (s *Server) ServeTCP(l net.Listener) error {
	var conns sync.WaitGroup
	defer conns.Wait()
	ctx, cut := context.WithCancel(context.Background())
	defer cut()
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		conns.Go(func() {
			defer conn.Close()
			defer context.AfterFunc(ctx, func() { conn.Close() })()
			for lines := bufio.NewScanner(conn); lines.Scan(); {
				if _, err := fmt.Fprintf(conn, "%s %s\n", s.o.Name, lines.Text()); err != nil {
					return
				}
			}
		})
	}
}

func (s *Server) grpc() *grpc.Server {
	g := grpc.NewServer(
		grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			if err := grpc.SetHeader(ctx, metadata.Pairs(Header, s.o.Name)); err != nil {
				return nil, err
			}
			return next(ctx, req)
		}))
	healthv1.RegisterHealthServer(g, health.NewServer())
	return g
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request) {
	a := Answer{Name: s.o.Name, Version: s.o.Version, Protocol: r.Proto, Path: r.URL.Path}
	for _, name := range r.URL.Query()["header"] {
		if a.Headers == nil {
			a.Headers = map[string]string{}
		}
		a.Headers[name] = r.Header.Get(name)
		if name == "host" {
			a.Headers[name] = r.Host
		}
	}
	status := http.StatusOK
	for _, url := range s.o.Calls {
		called, err := s.call(r.Context(), url)
		if err != nil {
			status, a.Error = http.StatusBadGateway, err.Error()
			break
		}
		a.Calls = append(a.Calls, called)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(a)
}

func (s *Server) call(ctx context.Context, url string) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return Answer{}, fmt.Errorf("call %s: %w", url, err)
	}
	resp, err := s.o.Transport.RoundTrip(req)
	if err != nil {
		return Answer{}, fmt.Errorf("call %s: %w", url, err)
	}
	return Decode(resp)
}

// Decode reads a response and closes its body. An error describes any response except an answer with status 200.
func Decode(resp *http.Response) (Answer, error) {
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return Answer{}, fmt.Errorf("read answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return Answer{}, fmt.Errorf("status %d: %.200s", resp.StatusCode, strings.TrimSpace(string(body)))
	}
	var a Answer
	if err := json.Unmarshal(body, &a); err != nil {
		return Answer{}, fmt.Errorf("answer %.100q: %w", body, err)
	}
	return a, nil
}
