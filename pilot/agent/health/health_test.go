package health

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/deploy/leaks"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// probeFunc is a probe that calls a function.
type probeFunc func(context.Context) error

func (f probeFunc) Check(ctx context.Context) error { return f(ctx) }

// check returns the result of a probe as text.
func check(p *Probe) string {
	if p.Timeout == 0 {
		p.Timeout = 20 * time.Second
	}
	if err := p.Check(context.Background()); err != nil {
		return err.Error()
	}
	return "well"
}

func TestHTTP(t *testing.T) {
	elsewhere := "http://192.0.2.1/"
	mux := http.NewServeMux()
	mux.HandleFunc("/code/{code}", func(w http.ResponseWriter, r *http.Request) {
		var code int
		fmt.Sscan(r.PathValue("code"), &code)
		w.WriteHeader(code)
	})
	mux.Handle("/here", http.RedirectHandler("/code/418", http.StatusFound))
	mux.Handle("/elsewhere", http.RedirectHandler(elsewhere, http.StatusFound))
	mux.Handle("/round", http.RedirectHandler("/round", http.StatusFound))
	mux.HandleFunc("/header", func(w http.ResponseWriter, r *http.Request) {
		if r.Host != "app.example" || r.Header.Get("X-Probe") != "1" {
			w.WriteHeader(http.StatusBadRequest)
		}
	})
	mux.HandleFunc("/large", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Large", strings.Repeat("x", 2*maxHeader))
	})
	mux.HandleFunc("/source", func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.RemoteAddr, SourceIPv4+":") {
			w.WriteHeader(http.StatusForbidden)
		}
	})
	plain, secure := httptest.NewServer(mux), httptest.NewTLSServer(mux)
	defer plain.Close()
	defer secure.Close()
	for _, s := range []*httptest.Server{plain, secure} {
		for path, want := range map[string]string{
			"/code/200": "well", "/code/399": "well", "/code/400": "HTTP 400", "/code/503": "HTTP 503", "/here": "HTTP 418",
			"/elsewhere": "well", "/source": "HTTP 403",
		} {
			if got := check(&Probe{HTTP: &HTTP{URL: s.URL + path}}); got != want {
				t.Errorf("%s%s: %s, want %s", s.URL, path, got, want)
			}
		}
	}
	header := http.Header{"Host": {"app.example"}, "X-Probe": {"1"}}
	for what, c := range map[string]struct {
		probe Probe
		want  string
	}{
		"redirects without end": {Probe{HTTP: &HTTP{URL: plain.URL + "/round"}}, "10 redirects"},
		"with headers":          {Probe{HTTP: &HTTP{URL: plain.URL + "/header", Header: header}}, "well"},
		"a header of 128 KiB":   {Probe{HTTP: &HTTP{URL: plain.URL + "/large"}}, "headers exceeded"},
		"from " + SourceIPv4:    {Probe{Source: true, HTTP: &HTTP{URL: plain.URL + "/source"}}, "well"},
	} {
		if got := check(&c.probe); !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %s", what, got, c.want)
		}
	}
	if err := (&Probe{HTTP: &HTTP{URL: plain.URL + "/code/200"}}).Check(t.Context()); err != nil {
		t.Errorf("without a timeout: %v", err)
	}
}

// TestHTTP2 checks that a probe uses HTTP/2 if it may and the application does.
func TestHTTP2(t *testing.T) {
	var version atomic.Value
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { version.Store(r.Proto) }))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	for allowed, want := range map[bool]string{true: "HTTP/2.0", false: "HTTP/1.1"} {
		if got := check(&Probe{HTTP: &HTTP{URL: s.URL, HTTP2: allowed}}); got != "well" || version.Load() != want {
			t.Errorf("allowed %v: %s, by %v, want %s", allowed, got, version.Load(), want)
		}
	}
}

func TestOthers(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	s, h := grpc.NewServer(), health.NewServer()
	healthpb.RegisterHealthServer(s, h)
	h.SetServingStatus("down", healthpb.HealthCheckResponse_NOT_SERVING)
	done := make(chan error)
	go func() { done <- s.Serve(l) }()
	addr := l.Addr().String()
	if got := check(&Probe{TCP: addr}); got != "well" {
		t.Errorf("TCP: %s", got)
	}
	for service, want := range map[string]string{"": "well", "down": "NOT_SERVING", "unknown": "unknown service"} {
		if got := check(&Probe{Source: true, GRPC: &GRPC{Addr: addr, Service: service}}); !strings.Contains(got, want) {
			t.Errorf("gRPC service %q: %s, want %s", service, got, want)
		}
	}
	s.Stop()
	<-done
	for _, p := range []*Probe{{TCP: addr}, {GRPC: &GRPC{Addr: addr}}, {HTTP: &HTTP{URL: "http://" + addr}}} {
		if got := check(p); !strings.Contains(got, "refused") {
			t.Errorf("nobody listens: %s", got)
		}
	}
	if got := check(&Probe{Exec: []string{"true"}}); got != "well" {
		t.Errorf("a command: %s", got)
	}
	if got := check(&Probe{Exec: []string{"sh", "-c", "echo broken >&2; exit 3"}}); got != "sh: exit status 3: broken" {
		t.Errorf("a command that fails: %s", got)
	}
}

// TestTimeouts checks that a probe ends at its timeout.
func TestTimeouts(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections in its backlog, and never answers
	must.Succeed(t, err)
	defer l.Close()
	addr := l.Addr().String()
	for _, p := range []*Probe{{HTTP: &HTTP{URL: "http://" + addr}}, {GRPC: &GRPC{Addr: addr}}, {Exec: []string{"sleep", "1000"}}} {
		p.Timeout = 50 * time.Millisecond
		if got := check(p); !strings.Contains(strings.ToLower(got), "deadline") {
			t.Errorf("%+v: %s", p, got)
		}
	}
}

func TestThresholds(t *testing.T) {
	for _, c := range []struct{ results, want string }{
		{"++++", "+..."}, {"----", "..-."}, {"--+---", "..+..-"}, {"+-+--+--+", "+........"}, {"---+-", "..-+."},
	} {
		s, got := state{successes: 1, failures: 3}, ""
		for _, r := range c.results {
			switch changed, healthy := s.next(r == '+'); {
			case !changed:
				got += "."
			case healthy:
				got += "+"
			default:
				got += "-"
			}
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.results, got, c.want)
		}
	}
}

// TestReports checks that a Checker reports the first result and each change, and makes no probe before the proxy is
// ready and the delay has passed.
func TestReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var got []string
		var ready atomic.Bool
		c, err := New(Options{
			Probe: &networkingv1.ReadinessProbe{
				InitialDelaySeconds: 5, PeriodSeconds: 2, FailureThreshold: 2,
				HealthCheckMethod: &networkingv1.ReadinessProbe_Exec{Exec: &networkingv1.ExecHealthCheckConfig{Command: []string{"unused"}}},
			},
			Ready: func(context.Context) error {
				if !ready.Load() {
					return errors.New("not yet")
				}
				return nil
			},
			Report: func(healthy bool, message string) {
				got = append(got, fmt.Sprintf("%s %t %s", time.Since(start), healthy, message))
			},
		})
		must.Succeed(t, err)
		var well atomic.Bool
		well.Store(true)
		c.probe = probeFunc(func(context.Context) error {
			if !well.Load() {
				return errors.New("broken")
			}
			return nil
		})

		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error)
		go func() { done <- c.Run(ctx) }()
		time.Sleep(9500 * time.Millisecond)
		ready.Store(true)
		time.Sleep(10 * time.Second) // asked at 15 s, 17 s, 19 s
		well.Store(false)            // at 19.5 s
		time.Sleep(10 * time.Second)
		well.Store(true) // at 29.5 s
		time.Sleep(10 * time.Second)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if want := "15s true ; 23s false broken; 31s true "; strings.Join(got, "; ") != want {
			t.Errorf("got %s\nwant %s", strings.Join(got, "; "), want)
		}
	})
}

func TestWrongProbes(t *testing.T) {
	for want, p := range map[string]*networkingv1.ReadinessProbe{
		"readinessProbe: missing":                      nil,
		"readinessProbe.httpGet: one of":               {},
		"readinessProbe.periodSeconds: -1 is negative": {PeriodSeconds: -1},
		"readinessProbe.tcpSocket.port: 70000 is not a port": {
			HealthCheckMethod: &networkingv1.ReadinessProbe_TcpSocket{TcpSocket: &networkingv1.TCPHealthCheckConfig{Port: 70000}},
		},
		`readinessProbe.httpGet.scheme: "ftp" is neither`: {
			HealthCheckMethod: &networkingv1.ReadinessProbe_HttpGet{HttpGet: &networkingv1.HTTPHealthCheckConfig{Port: 1, Scheme: "ftp"}},
		},
		"readinessProbe.exec.command: empty": {
			HealthCheckMethod: &networkingv1.ReadinessProbe_Exec{Exec: &networkingv1.ExecHealthCheckConfig{}},
		},
		"readinessProbe.grpc.port: 0 is not a port": {
			HealthCheckMethod: &networkingv1.ReadinessProbe_Grpc{Grpc: &networkingv1.GrpcHealthCheckConfig{}},
		},
	} {
		if _, err := New(Options{Probe: p}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
