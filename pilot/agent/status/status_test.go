package status

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/istiod-lite/istiod-lite/api/scrape"
	"github.com/istiod-lite/istiod-lite/deploy/leaks"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// start runs a Server on a free port and returns its URL.
func start(t *testing.T, o Options) string {
	t.Helper()
	o.Addr = "127.0.0.1:0"
	s, err := New(o)
	must.Succeed(t, err)
	s.ready.client.Timeout = 2 * time.Minute // on a busy machine the fake Envoy is slow
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		http.DefaultClient.CloseIdleConnections()
		s.ready.client.CloseIdleConnections()
	})
	return "http://" + s.Addr()
}

// serve runs an HTTP server and returns its HOST:PORT.
func serve(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// do makes a request and returns the status and the body.
func do(t *testing.T, method, url string, header ...string) (int, string, http.Header) {
	t.Helper()
	req, err := http.NewRequest(method, url, nil)
	must.Succeed(t, err)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	must.Succeed(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must.Succeed(t, err)
	return resp.StatusCode, string(body), resp.Header
}

const live = "cluster_manager.cds.update_success: 1\nlistener_manager.lds.update_success: 2\n" +
	"listener_manager.workers_started: 1\nserver.state: 0\n"

func TestReadiness(t *testing.T) {
	var stats, broken, names atomic.Value
	stats.Store("")
	broken.Store(false)
	names.Store(false)
	envoy := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if broken.Load().(bool) {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		io.WriteString(w, stats.Load().(string))
	})
	var a agent
	url := start(t, Options{EnvoyAdmin: envoy, Names: table(func() bool { return names.Load().(bool) }), Agent: &a})
	without := func(what string) string { return strings.ReplaceAll(live, what, "x") }
	for i, step := range []struct {
		stats         string
		names, broken bool
		code          int
		body          string
	}{
		{"", false, true, 503, "does not respond yet: HTTP 500"},
		{"", false, false, 503, "has not sent configuration (is it running?): clusters: 0 updates, 0 rejected; listeners: 0 updates"},
		{without("lds"), false, false, 503, "has not sent configuration"},
		{without("cds") + "cluster_manager.cds.update_rejected: 3\n", false, false, 503,
			"the proxy rejected its configuration: clusters: 0 updates, 3 rejected"},
		{strings.Replace(live, "state: 0", "state: 2", 1), false, false, 503, "the proxy is not live: server.state is 2"},
		{without("server"), false, false, 503, "the proxy is not live"},
		{strings.Replace(live, "started: 1", "started: 0", 1), false, false, 503, "has not started its workers"},
		{live, false, false, 503, "has not sent the DNS name table"},
		{live, true, false, 200, ""},
		// Once ready, it stays ready.
		{live, false, false, 200, ""},
		{"", true, false, 200, ""},
		{live, true, true, 200, ""},
		{strings.Replace(live, "state: 0", "state: 1", 1), true, false, 503, "the proxy is draining"},
		{live, true, false, 200, ""},
	} {
		stats.Store(step.stats)
		names.Store(step.names)
		broken.Store(step.broken)
		if code, body, _ := do(t, "GET", url+"/healthz/ready"); code != step.code || !strings.Contains(body, step.body) {
			t.Errorf("step %d: %d %s, want %d %s", i, code, body, step.code, step.body)
		}
	}
	if code, _, _ := do(t, "POST", url+"/drain"); code != 200 || a.drains.Load() != 1 {
		t.Errorf("drain: %d, %d times", code, a.drains.Load())
	}
	if code, body, _ := do(t, "GET", url+"/healthz/ready"); code != 503 || !strings.Contains(body, "draining") {
		t.Errorf("after a drain: %d %s", code, body)
	}
}

// agent is an Agent that counts calls.
type agent struct{ quits, drains atomic.Int32 }

func (a *agent) Quit()  { a.quits.Add(1) }
func (a *agent) Drain() { a.drains.Add(1) }

// table is a name table that is there if the function returns true.
type table func() bool

func (t table) Ready() bool { return t() }
func (table) JSON() []byte  { return []byte(`{"table":{}}`) }

// TestReadinessWithoutEnvoy checks that a proxyless application is ready at once.
func TestReadinessWithoutEnvoy(t *testing.T) {
	if code, body, _ := do(t, "GET", start(t, Options{})+"/healthz/ready"); code != 200 {
		t.Errorf("%d %s", code, body)
	}
}

// TestOnlyFromThisPod checks that pages that stop the agent or show its state are only for this pod.
func TestOnlyFromThisPod(t *testing.T) {
	var a agent
	o := Options{Addr: "127.0.0.1:0", Agent: &a, Names: table(nil)}
	s, err := New(o)
	must.Succeed(t, err)
	defer s.listener.Close()
	defer s.ready.client.CloseIdleConnections()
	for _, c := range []struct {
		method, path, from string
		code               int
	}{
		{"POST", "/quitquitquit", "127.0.0.6:1", 403}, // forwarded by Envoy from another host
		{"POST", "http://rebound.example:15020/quitquitquit", "127.0.0.1:1", 403},
		{"GET", "http://localhost/debug/ndsz", "127.0.0.1:1", 200},
		{"GET", "http://[::1]:15020/debug/ndsz", "[::1]:1", 200},
		{"POST", "/quitquitquit", "10.0.0.1:1", 403},
		{"POST", "/drain", "10.0.0.1:1", 403},
		{"GET", "/debug/ndsz", "10.0.0.1:1", 403},
		{"GET", "/debug/pprof/", "[fd00::1]:1", 403},
		{"GET", "/debug/pprof/cmdline", "not an address", 403},
		{"GET", "/quitquitquit", "127.0.0.1:1", 405},
		{"POST", "/drain", "127.0.0.1:1", 200},
		{"GET", "/debug/ndsz", "[::1]:1", 200},
		{"GET", "/debug/pprof/", "[::ffff:127.0.0.1]:1", 200},
		{"POST", "/quitquitquit", "127.0.0.1:1", 200},
		{"GET", "/unknown", "127.0.0.1:1", 404},
	} {
		to := c.path
		if strings.HasPrefix(to, "/") {
			to = "http://127.0.0.1:15020" + to
		}
		r := httptest.NewRequest(c.method, to, nil)
		r.RemoteAddr = c.from
		w := httptest.NewRecorder()
		s.http.Handler.ServeHTTP(w, r)
		if w.Code != c.code {
			t.Errorf("%s %s from %s: %d, want %d", c.method, c.path, c.from, w.Code, c.code)
		}
	}
	if a.quits.Load() != 1 || a.drains.Load() != 1 {
		t.Errorf("the agent was ended %d times and drained %d times", a.quits.Load(), a.drains.Load())
	}
}

// TestNoOtherOrigin checks that requests of web pages in a browser on this host are refused. Browsers send such a
// POST without a preflight request.
func TestNoOtherOrigin(t *testing.T) {
	var a agent
	s, err := New(Options{Addr: "127.0.0.1:0", Agent: &a})
	must.Succeed(t, err)
	defer s.listener.Close()
	for _, c := range []struct {
		method, path, header, value string
		code                        int
	}{
		{"POST", "/quitquitquit", "Origin", "https://evil.example", 403},
		{"POST", "/drain", "Origin", "null", 403},
		{"POST", "/drain", "Sec-Fetch-Site", "same-site", 403},
		{"GET", "/debug/pprof/profile", "Sec-Fetch-Site", "cross-site", 403},
		{"GET", "/debug/pprof/", "Origin", "http://localhost:15020", 200},
		{"GET", "/debug/pprof/", "Sec-Fetch-Site", "none", 200},
		{"GET", "/healthz/ready", "Origin", "https://evil.example", 200},
	} {
		r := httptest.NewRequest(c.method, "http://localhost:15020"+c.path, nil)
		r.RemoteAddr = "127.0.0.1:1"
		r.Header.Set(c.header, c.value)
		w := httptest.NewRecorder()
		s.http.Handler.ServeHTTP(w, r)
		if w.Code != c.code {
			t.Errorf("%s %s with %s %s: %d, want %d", c.method, c.path, c.header, c.value, w.Code, c.code)
		}
	}
	if n := a.quits.Load() + a.drains.Load(); n > 0 {
		t.Errorf("%d requests of another origin did something", n)
	}
}

func TestNameTable(t *testing.T) {
	url := start(t, Options{Names: table(nil)})
	if code, body, _ := do(t, "GET", url+"/debug/ndsz"); code != 200 || body != `{"table":{}}` {
		t.Errorf("%d %s", code, body)
	}
	if code, _, _ := do(t, "GET", url+"/debug/ndsz", "X-Large", strings.Repeat("x", 80<<10)); code != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a header of 80 KiB: %d", code)
	}
	without := start(t, Options{})
	if code, _, _ := do(t, "POST", without+"/drain"); code != 404 {
		t.Errorf("a drain without an agent: %d", code)
	}
	if code, body, _ := do(t, "GET", without+"/debug/ndsz"); code != 404 || !strings.Contains(body, "DNS proxying is off") {
		t.Errorf("without DNS: %d %s", code, body)
	}
}

func TestProbes(t *testing.T) {
	app := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.RemoteAddr, "127.0.0.6:") || r.Header.Get("X-App") != "yes" || r.Host != "app.example" ||
			r.UserAgent() != "kube-probe/1.37" || slices.ContainsFunc(hopByHop(),
			func(name string) bool { return r.Header.Get(name) != "" && name != "Connection" }) {
			w.WriteHeader(http.StatusTeapot)
			fmt.Fprint(w, r.RemoteAddr, r.Host, r.Header)
			return
		}
		if r.URL.String() == "/sick?a=b" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	_, port, _ := net.SplitHostPort(app)
	headers := `"httpHeaders":[{"name":"x-app","value":"yes"},{"name":"host","value":"app.example"}]`
	base := start(t, Options{AppHost: "127.0.0.1", Probers: strings.ReplaceAll(`{
		"/app-health/web/livez": {"httpGet":{"path":"/well","port":PORT,"scheme":"HTTP",`+headers+`},"timeoutSeconds":20},
		"/app-health/web/readyz": {"httpGet":{"path":"sick?a=b","port":"PORT","host":"ignored.example",`+headers+`},"timeoutSeconds":20},
		"/app-health/web/startupz": {"tcpSocket":{"port":PORT},"timeoutSeconds":20},
		"/app-health/other/livez": {"grpc":{"port":PORT,"service":"x"},"timeoutSeconds":20},
		"/app-lifecycle/web/prestopz": {"httpGet":{"path":"/x","port":PORT},"timeoutSeconds":20}
	}`, "PORT", port)})
	for path, want := range map[string]int{
		"/app-health/web/livez": 200, "/app-health/web/readyz": 503, "/app-health/web/startupz": 200, "/app-health/other/livez": 500,
		"/app-lifecycle/web/prestopz": 418, "/app-health/unknown/livez": 404,
	} {
		header := []string{"User-Agent", "kube-probe/1.37"}
		for _, name := range []string{"Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te",
			"Accept-Encoding"} { // headers of the connection
			header = append(header, name, "trailers")
		}
		if code, body, _ := do(t, "GET", base+path, header...); code != want {
			t.Errorf("%s: %d %s, want %d", path, code, body, want)
		}
	}
}

// TestHooks checks that a hook may take as long as the kubelet waits, and that a probe has a default timeout of one
// second.
func TestHooks(t *testing.T) {
	probes, err := parseProbers(`{
		"/app-lifecycle/web/prestopz": {"httpGet":{"port":1}}, "/app-lifecycle/web/poststartz": {"httpGet":{"port":1},
		  "timeoutSeconds":7}, "/app-health/web/livez": {"httpGet":{"port":1}}
	}`, "", true)
	must.Succeed(t, err)
	if probes["/app-health/web/livez"].HTTP.HTTP2 {
		t.Error("a probe uses HTTP/2, which is off")
	}
	for path, want := range map[string]time.Duration{"/app-lifecycle/web/prestopz": 0, "/app-lifecycle/web/poststartz": 7 * time.Second,
		"/app-health/web/livez": time.Second} {
		if got := probes[path].Timeout; got != want {
			t.Errorf("%s ends after %s, want %s", path, got, want)
		}
	}
}

func TestWrongOptions(t *testing.T) {
	for want, o := range map[string]Options{
		`ISTIO_KUBE_APP_PROBERS: "/app-health/livez" is not the path`:      {Probers: `{"/app-health/livez":{"tcpSocket":{"port":1}}}`},
		`ISTIO_KUBE_APP_PROBERS: port "http" is not a number`:              {Probers: `{"/app-health/a/livez":{"tcpSocket":{"port":"http"}}}`},
		`ISTIO_KUBE_APP_PROBERS: "/app-health/a/livez": one of`:            {Probers: `{"/app-health/a/livez":{}}`},
		`ISTIO_KUBE_APP_PROBERS: "/app-health/a/livez": the probe is null`: {Probers: `{"/app-health/a/livez":null}`},
		`ISTIO_KUBE_APP_PROBERS: "/app-health/a/livez": httpGet.scheme: "x"`: {
			Probers: `{"/app-health/a/livez":{"httpGet":{"port":1,"scheme":"x"}}}`,
		},
		`ISTIO_KUBE_APP_PROBERS: unexpected end`: {Probers: `{`},
	} {
		o.Addr = "127.0.0.1:0"
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// TestScrapeTargets checks that the agent runs with any annotations, and scrapes only targets that can be the
// application.
func TestScrapeTargets(t *testing.T) {
	for text, c := range map[string]struct{ want, warned string }{
		`{"scrape":"true","path":"m","port":"9000"}`:       {want: "http://localhost:9000/m"},
		`{"scrape":"","path":"/metrics","port":"9000"}`:    {want: "http://localhost:9000/metrics"},
		`{"scrape":"yes","path":"","port":""}`:             {want: "http://localhost:80/metrics"},
		`{}`:                                               {want: "http://localhost:80/metrics"},
		`{"scrape":"false","path":"","port":"9000"}`:       {},
		`{"scrape":"true","port":"http"}`:                  {warned: "not the name of a port"},
		`{"scrape":"true","port":"80@192.0.2.1:80"}`:       {warned: "is no port"},
		`{"scrape":"true","port":"8","path":"@192.0.2.1"}`: {want: "http://localhost:8/@192.0.2.1"},
		`{"scrape":"true","port":"15000"}`:                 {warned: "Envoy's admin API"},
		`{"scrape":"true","port":"015020"}`:                {warned: "the agent's own"},
		`{"scrape":"true","port":"7020"}`:                  {warned: "the agent's own"},
		`{"scrape":"true","port":"7000"}`:                  {warned: "the agent's own"},
		`{"scrape":"true","port":"7090"}`:                  {warned: "the agent's own"},
		`{"scrape":"true","port":"7091"}`:                  {warned: "the agent's own"},
		`{`:                                                {warned: "unexpected end"},
		`{"port":9000}`:                                    {warned: "cannot unmarshal number"},
		`{"scrape":"","path":"/a","port":"1","targets":[{"port":"1","path":"/a"},{"port":"x","path":"/b"},{"port":"2","path":""}]}`: {
			want: "http://localhost:1/a http://localhost:2/metrics", warned: "not the name of a port",
		},
	} {
		var log bytes.Buffer
		m, err := newMerged(Options{
			Scraping: text, Log: slog.New(slog.NewTextHandler(&log, nil)), EnvoyAdmin: "127.0.0.1:7000",
			EnvoyStats: "http://[::1]:7090/stats/prometheus", Reserved: []uint16{7091, 0},
		}, &net.TCPAddr{Port: 7020})
		must.Succeed(t, err)
		if got := strings.Join(m.apps, " "); got != c.want {
			t.Errorf("%s: %s, want %s", text, got, c.want)
		}
		if warned := log.String(); !strings.Contains(warned, c.warned) || (warned == "") != (c.warned == "") {
			t.Errorf("%s: the log has %q, want %q", text, warned, c.warned)
		}
	}
}

// TestLocalMetrics checks that metrics for this pod only are refused to other hosts, on each path.
func TestLocalMetrics(t *testing.T) {
	s, err := New(Options{Addr: "127.0.0.1:0", LocalMetrics: true})
	must.Succeed(t, err)
	defer s.listener.Close()
	for _, path := range []string{"/metrics", "/stats/prometheus"} {
		for from, code := range map[string]int{"127.0.0.1:1": 200, "10.0.0.1:1": 403, "127.0.0.6:1": 403} {
			r := httptest.NewRequest(http.MethodGet, "http://localhost:15020"+path, nil)
			r.RemoteAddr = from
			w := httptest.NewRecorder()
			s.http.Handler.ServeHTTP(w, r)
			if w.Code != code {
				t.Errorf("%s from %s: %d, want %d", path, from, w.Code, code)
			}
		}
	}
}

func TestMergedMetrics(t *testing.T) {
	const envoyText = "# TYPE envoy_a counter\nenvoy_a{} 1\n\n" +
		"# TYPE istio_requests_total counter\nistio_requests_total{} 2\n# TYPE g gauge\ng{} 3"
	const appText = "# HELP app_x help\n# TYPE app_x counter\napp_x 4\n"
	const appOpen = "# TYPE app_x counter\napp_x_total 4 # {trace_id=\"a\"} 1\n# EOF\n"
	const both = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
	sendOpen := func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/openmetrics-text; version=1.0.0; charset=utf-8")
		io.WriteString(w, appOpen)
	}
	cut := func(w http.ResponseWriter) {
		w.Header().Set("Content-Length", "1000")
		io.WriteString(w, appText+"app_y 5")
	}
	for name, c := range map[string]struct {
		accept, query     string
		targets           int // number of the application's targets; 0 means one port in the annotations
		envoy, app        func(w http.ResponseWriter, r *http.Request)
		want, contentType string
		failures          float64
	}{
		"text": {
			want:        envoyText + "\nAGENT" + appText,
			contentType: textType,
		},
		"OpenMetrics": {
			accept: both,
			want: "# TYPE envoy_a unknown\nenvoy_a{} 1\n# TYPE istio_requests counter\nistio_requests_total{} 2\n# TYPE g gauge\ng{} 3\nOPEN" +
				strings.TrimSuffix(appOpen, "# EOF\n") + "# EOF\n",
			contentType: "application/openmetrics-text; version=1.0.0; charset=utf-8",
		},
		"OpenMetrics that only Prometheus knows": {
			accept:      both,
			app:         func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, appText) },
			want:        envoyText + "\nAGENT" + appText,
			contentType: textType,
		},
		"an application that fails": {
			app:         func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
			want:        envoyText + "\nAGENT",
			contentType: textType, failures: 1,
		},
		"an application that breaks off within a line": {
			app:         func(w http.ResponseWriter, _ *http.Request) { cut(w) },
			want:        envoyText + "\nAGENT" + appText,
			contentType: textType, failures: 1,
		},
		"an endless line": {
			app: func(w http.ResponseWriter, _ *http.Request) {
				io.WriteString(w, appText)
				for range 64 {
					io.WriteString(w, strings.Repeat("x", 64<<10))
				}
			},
			want:        envoyText + "\nAGENT" + appText,
			contentType: textType, failures: 1,
		},
		"an Envoy that fails": {
			envoy:       func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) },
			want:        "AGENT" + appText,
			contentType: textType, failures: 1,
		},
		"OpenMetrics that was not asked for": {
			app:         func(w http.ResponseWriter, _ *http.Request) { sendOpen(w) },
			want:        envoyText + "\nAGENT# TYPE app_x_total counter\napp_x_total 4\n",
			contentType: textType,
		},
		"two targets of OpenMetrics": {
			accept: both, targets: 2,
			app: func(w http.ResponseWriter, r *http.Request) { sendOpen(w); io.WriteString(w, r.URL.Path+" 1\n") },
			want: "# TYPE envoy_a unknown\nenvoy_a{} 1\n# TYPE istio_requests counter\nistio_requests_total{} 2\n# TYPE g gauge\ng{} 3\nOPEN" +
				strings.Replace(appOpen, "# EOF\n", "/0 1\n", 1) + strings.Replace(appOpen, "# EOF\n", "/1 1\n", 1) + "# EOF\n",
			contentType: "application/openmetrics-text; version=1.0.0; charset=utf-8",
		},
		"targets of two formats, and one that fails": {
			accept: both, targets: 3,
			app: func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case "/0":
					sendOpen(w)
				case "/1":
					w.WriteHeader(http.StatusTeapot)
				default:
					io.WriteString(w, "app_y 5\n")
				}
			},
			want:        envoyText + "\nAGENT# TYPE app_x_total counter\napp_x_total 4\napp_y 5\n",
			contentType: textType, failures: 1,
		},
		"gzip for every client": {
			app: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Encoding", "gzip")
				z := gzip.NewWriter(w)
				io.WriteString(z, appText)
				z.Close()
			},
			want:        envoyText + "\nAGENT" + appText,
			contentType: textType,
		},
		"gzip that is none": {
			app: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Encoding", "gzip")
				io.WriteString(w, appText)
			},
			want:        envoyText + "\nAGENT",
			contentType: textType, failures: 1,
		},
		"another encoding": {
			app: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Encoding", "br")
				io.WriteString(w, appText)
			},
			want:        envoyText + "\nAGENT",
			contentType: textType, failures: 1,
		},
		"a selection of Envoy's": {
			query:       "?usedonly",
			envoy:       func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.URL.RawQuery+" 1\n") },
			want:        "usedonly 1\nAGENT" + appText,
			contentType: textType,
		},
		"protobuf that nobody asked for": {
			app: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily")
			},
			want:        envoyText + "\nAGENT",
			contentType: textType, failures: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			envoy := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if c.envoy != nil {
					c.envoy(w, r)
					return
				}
				io.WriteString(w, envoyText)
			})
			app := serve(t, func(w http.ResponseWriter, r *http.Request) {
				switch {
				case c.app != nil:
					c.app(w, r)
				case strings.Contains(r.Header.Get("Accept"), openMetrics):
					sendOpen(w)
				default:
					io.WriteString(w, appText)
				}
			})
			u, _ := url.Parse("http://" + app)
			own, counted := prometheus.NewRegistry(), prometheus.NewRegistry()
			n := prometheus.NewCounter(prometheus.CounterOpts{Name: "istio_agent_n_total", Help: "h"})
			own.MustRegister(n)
			config := scrape.Config{Scrape: "true", Path: "metrics", Port: u.Port()}
			for i := range c.targets {
				config.Targets = append(config.Targets, scrape.Target{Port: u.Port(), Path: fmt.Sprint("/", i)})
			}
			scraping, err := json.Marshal(config)
			must.Succeed(t, err)
			base := start(t, Options{EnvoyStats: "http://" + envoy, Scraping: string(scraping), Gatherer: own, Registerer: counted})
			code, body, header := do(t, "GET", base+"/stats/prometheus"+c.query, "Accept", c.accept)
			want := strings.ReplaceAll(c.want, "AGENT", "# HELP istio_agent_n_total h\n# TYPE istio_agent_n_total counter\nistio_agent_n_total 0\n")
			want = strings.ReplaceAll(want, "OPEN", "# HELP istio_agent_n h\n# TYPE istio_agent_n counter\nistio_agent_n_total 0.0\n")
			if code != 200 || body != want || header.Get("Content-Type") != c.contentType {
				t.Errorf("%d %s\n%s\nwant %s\n%s", code, header.Get("Content-Type"), body, c.contentType, want)
			}
			found, err := counted.Gather()
			must.Succeed(t, err)
			values := map[string]float64{}
			for _, f := range found {
				for _, v := range f.Metric {
					values[f.GetName()] += v.GetCounter().GetValue()
				}
			}
			if values["istio_agent_scrapes_total"] != 1 || values["istio_agent_scrape_failures_total"] != c.failures {
				t.Errorf("counted %v, want %g failures", values, c.failures)
			}
		})
	}
}

// TestToText checks lines of OpenMetrics that the text format does not have.
func TestToText(t *testing.T) {
	for line, want := range map[string]string{
		"# TYPE a counter":               "# TYPE a_total counter",
		"# TYPE a unknown":               "# TYPE a untyped",
		"# TYPE a info":                  "# TYPE a_info gauge",
		"# TYPE a stateset":              "# TYPE a gauge",
		"# TYPE a gaugehistogram":        "",
		"# TYPE a histogram":             "# TYPE a histogram",
		"# HELP a of a":                  "# HELP a of a",
		"# UNIT a_seconds seconds":       "",
		"a 1":                            "a 1",
		"a 1 1.5":                        "a 1 1500",
		"a 1 # {t=\"x\"} 1":              "a 1",
		"a{l=\"} 9 # \\\"\"} 1 2 # {} 1": "a{l=\"} 9 # \\\"\"} 1 2000",
		"a{} +Inf":                       "a{} +Inf",
		"a":                              "a",
		"":                               "",
	} {
		if want != "" {
			want += "\n"
		}
		if got := string(toText([]byte(line + "\n"))); got != want {
			t.Errorf("%q becomes %q, want %q", line, got, want)
		}
	}
}

// TestCompressed checks that metrics are compressed for clients that accept gzip.
func TestCompressed(t *testing.T) {
	base := start(t, Options{EnvoyStats: "http://" + serve(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "a 1\n") })})
	for accept, want := range map[string]string{
		"gzip": "gzip", "br, gzip;q=0.5": "gzip", "*": "gzip", "GZIP": "gzip", "identity": "", "gzip; q=0": "", "gzip;q=x": "", "br": "",
	} {
		for range 2 { // the second time with a reused compressor
			_, body, header := do(t, "GET", base+"/metrics", "Accept-Encoding", accept)
			if got := header.Get("Content-Encoding"); got != want {
				t.Fatalf("%s: encoding %q, want %q", accept, got, want)
			}
			if want != "" {
				z, err := gzip.NewReader(strings.NewReader(body))
				must.Succeed(t, err)
				text, err := io.ReadAll(z)
				must.Succeed(t, err)
				body = string(text)
			}
			if body != "a 1\n" {
				t.Errorf("%s: %q", accept, body)
			}
		}
	}
}

// TestLargeMetrics checks that the metrics of an endless source are served up to the limit.
func TestLargeMetrics(t *testing.T) {
	endless := func(name string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, name+" 1\n"); err != nil {
					return
				}
			}
		}
	}
	_, port, _ := net.SplitHostPort(serve(t, endless("app")))
	base := start(t, Options{EnvoyStats: "http://" + serve(t, endless("envoy")), Scraping: `{"scrape":"true","port":"` + port + `"}`,
		maxSource: 1 << 10})
	code, body, _ := do(t, "GET", base+"/stats/prometheus")
	for name, most := range map[string]int{"envoy 1\n": 1 << 10 / 8, "app 1\n": 1 << 10 / 6} {
		if n := strings.Count(body, name); code != 200 || n == 0 || n > most {
			t.Errorf("%d, %d times %q", code, n, name)
		}
	}
}

// far is a listener whose connections all come from one address of another host.
type far struct {
	net.Listener
	conns chan net.Conn
}

type farConn struct {
	net.Conn
	closed chan struct{}
}

func (l far) Accept() (net.Conn, error) {
	c, ok := <-l.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (farConn) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort("10.0.0.9:1"))
}
func (c farConn) Close() error { close(c.closed); return nil }

// TestConnectionsOfOneAddress checks that the number of connections from one address of another host is limited.
func TestConnectionsOfOneAddress(t *testing.T) {
	l := far{conns: make(chan net.Conn, maxConnections+1)}
	var err error
	l.Listener, err = net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	s, err := newServer(Options{}, l)
	must.Succeed(t, err)
	defer l.Listener.Close()
	var last farConn
	for range maxConnections + 1 {
		last = farConn{closed: make(chan struct{})}
		l.conns <- last
	}
	close(l.conns)
	for i := range maxConnections {
		if _, err := s.listener.Accept(); err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
	}
	if c, err := s.listener.Accept(); err == nil {
		t.Errorf("one connection more is taken: %v", c)
		return
	}
	<-last.closed
}

// TestHangingSource checks that a source that hangs times out before Prometheus does, and that the others are served.
func TestHangingSource(t *testing.T) {
	release := make(chan struct{})
	app := serve(t, func(http.ResponseWriter, *http.Request) { <-release })
	defer close(release)
	_, port, _ := net.SplitHostPort(app)
	envoy := serve(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "a 1\n") })
	base := start(t, Options{EnvoyStats: "http://" + envoy, Scraping: `{"scrape":"true","port":"` + port + `"}`})
	var code int
	var body string
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); { // on a busy machine Envoy may time out as well
		if code, body, _ = do(t, "GET", base+"/stats/prometheus", "X-Prometheus-Scrape-Timeout-Seconds", "1"); code == 200 && body == "a 1\n" {
			return
		}
	}
	t.Errorf("%d %s", code, body)
}

// TestSlowClient checks that a client that does not read its response blocks neither Envoy's response nor a
// connection.
func TestSlowClient(t *testing.T) {
	given := make(chan struct{}, 1)
	envoy := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		line := []byte(strings.Repeat("a", 1<<10) + " 1\n")
		for range 64 << 10 { // more than sockets buffer
			if _, err := w.Write(line); err != nil {
				break
			}
		}
		given <- struct{}{}
	})
	base := start(t, Options{EnvoyStats: "http://" + envoy, Patience: 50 * time.Millisecond})
	conn, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
	must.Succeed(t, err)
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /stats/prometheus HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	<-given
	if _, err := io.Copy(io.Discard, conn); err != nil { // until the server closes the connection
		t.Log(err)
	}
	if code, body, _ := do(t, "GET", base+"/healthz/ready"); code != http.StatusOK {
		t.Errorf("the next client: %d %s", code, body)
	}
}
