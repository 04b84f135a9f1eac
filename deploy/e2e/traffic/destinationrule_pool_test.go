package traffic

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// destinationRuleServer answers requests in a pod, and can delay them.
type destinationRuleServer struct {
	name    string
	open    atomic.Int32 // its connections
	waiting atomic.Int32 // requests that wait

	mu   sync.Mutex
	gate chan struct{} // requests wait until it is closed
}

// serveHTTP serves HTTP/1.1 and HTTP/2 in a pod until the test ends. A request for /.../hold waits, as does one for
// /again from its second attempt on; the first is answered with 503. /.../fail/CODE is answered with the code.
func (m destinationRuleMesh) serveHTTP(pod string, ports ...int) *destinationRuleServer {
	m.t.Helper()
	s, h := m.newServer(pod)
	for _, port := range ports {
		m.serve(pod, "0.0.0.0", port, h.Serve, func() { _ = h.Close() })
	}
	return s
}

func (m destinationRuleMesh) newServer(name string) (*destinationRuleServer, *http.Server) {
	s := &destinationRuleServer{name: name, gate: make(chan struct{})}
	return s, &http.Server{Protocols: bothProtocols(), Handler: s, ConnState: func(_ net.Conn, state http.ConnState) { //nolint:gosec
		switch state {
		case http.StateNew:
			s.open.Add(1)
		case http.StateClosed:
			s.open.Add(-1)
		}
	}}
}

func (s *destinationRuleServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Server", s.name)
	w.Header().Set("X-Proto", r.Proto)
	w.Header().Set("X-Remote", r.RemoteAddr)
	again := strings.HasPrefix(r.URL.Path, "/again")
	switch {
	case again && r.Header.Get("X-Envoy-Attempt-Count") == "1":
		w.WriteHeader(http.StatusServiceUnavailable)
	case again, strings.HasSuffix(r.URL.Path, "/hold"):
		s.mu.Lock()
		gate := s.gate
		s.mu.Unlock()
		s.waiting.Add(1)
		defer s.waiting.Add(-1)
		select {
		case <-gate:
		case <-r.Context().Done():
		}
	default:
		if _, code, ok := strings.Cut(r.URL.Path, "/fail/"); ok {
			n, _ := strconv.Atoi(code)
			w.WriteHeader(n)
		}
	}
}

// release lets the waiting requests go on.
func (s *destinationRuleServer) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.gate)
	s.gate = make(chan struct{})
}

// client returns a client of the gateway that keeps its connections. With HTTP/2 it has one.
func (m destinationRuleMesh) client(h2 bool) *http.Client {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(!h2)
	protocols.SetUnencryptedHTTP2(h2)
	c := &http.Client{
		Timeout: time.Minute, Transport: &http.Transport{Protocols: protocols, DialContext: m.Pod("client").Location.DialContext},
	}
	m.t.Cleanup(c.CloseIdleConnections)
	return c
}

// destinationRuleReply is the result of a request.
type destinationRuleReply struct {
	status         int
	server, remote string // server is empty if the gateway answered
	overloaded     bool   // reported by the gateway
}

// get sends a request to the gateway, or to a URL. The reply is empty after an error.
func (m destinationRuleMesh) get(c *http.Client, path string) destinationRuleReply {
	if strings.HasPrefix(path, "/") {
		path = "http://" + requests + path
	}
	req, err := http.NewRequestWithContext(m.t.Context(), http.MethodGet, path, nil)
	if err != nil {
		return destinationRuleReply{}
	}
	resp, err := c.Do(req)
	if err != nil {
		return destinationRuleReply{}
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return destinationRuleReply{resp.StatusCode, resp.Header.Get("X-Server"), resp.Header.Get("X-Remote"),
		resp.Header.Get("X-Envoy-Overloaded") == "true"}
}

// takes writes the DestinationRule of a service, and waits until the gateway's cluster of a port says something.
func (m destinationRuleMesh) takes(host string, port int, policy, says string) {
	m.t.Helper()
	m.rule(host, policy)
	m.says(host, port, says)
}

func (m destinationRuleMesh) says(host string, port int, says string) {
	m.t.Helper()
	name := fmt.Sprintf(`outbound\|%d\|\|%s\.a\..*`, port, host)
	suite.Eventually(m.t, host+" has "+says, func() bool {
		dump, err := m.Pod("gateway").Proxy.Get(m.t.Context(), "/config_dump?resource=dynamic_active_clusters&name_regex="+url.QueryEscape(name))
		return err == nil && strings.Contains(strings.Join(strings.Fields(string(dump)), " "), says)
	})
}

// refuses makes requests at the same time. Some are answered with 503 at once. The others wait at the server until they
// are released. The first one arrives at the server before the rest are sent.
func (m destinationRuleMesh) refuses(s *destinationRuleServer, path string, all, refused int, byProxy bool) {
	m.t.Helper()
	c := m.client(true)
	answers := make(chan destinationRuleReply, all)
	var running sync.WaitGroup
	defer running.Wait()
	for i := range all {
		running.Go(func() { answers <- m.get(c, path) })
		if i == 0 {
			suite.Eventually(m.t, "a request waits at the server", func() bool { return s.waiting.Load() > 0 })
		}
	}
	for range refused {
		if got := <-answers; got.status != http.StatusServiceUnavailable || (got.server == "") != byProxy || got.overloaded != byProxy {
			m.t.Errorf("%s: %+v", path, got)
		}
	}
	for done := 0; done < all-refused; {
		s.release()
		select {
		case got := <-answers:
			done++
			if got.status != http.StatusOK || got.server != s.name {
				m.t.Errorf("%s, when it may go on: %+v", path, got)
			}
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// TestPool: connections and requests of a service are limited as its rule says, and the gateway refuses those above a
// limit.
func TestPool(t *testing.T) {
	m := startDestinationRule(t, "h2UpgradePolicy: DO_NOT_UPGRADE\n")
	m.accept("one", "0.0.0.0", 9090, answerLine)
	s := m.serveHTTP("one", 8080)
	protocol := func(what, want string) {
		t.Helper()
		suite.Eventually(t, what+": "+want, func() bool {
			resp, err := m.client(false).Get("http://" + requests + "/one")
			if err != nil {
				return false
			}
			_ = resp.Body.Close()
			return resp.Header.Get("X-Proto") == want
		})
	}
	remotes := func(c *http.Client, n int) int {
		all := map[string]bool{}
		for range n {
			got := m.get(c, "/one")
			if got.status != http.StatusOK {
				t.Errorf("%+v", got)
			}
			all[got.remote] = true
		}
		return len(all)
	}

	t.Run("Upgrade", func(t *testing.T) {
		protocol("no rule", "HTTP/1.1")
		m.rule("one", `{connectionPool: {http: {h2UpgradePolicy: UPGRADE}}}`)
		protocol("a rule", "HTTP/2.0")
		m.rule("one",
			`{connectionPool: {http: {h2UpgradePolicy: UPGRADE}}, portLevelSettings: [{port: {number: 80}, connectionPool: {http: `+
				`{h2UpgradePolicy: DO_NOT_UPGRADE}}}]}`)
		protocol("a rule of the port", "HTTP/1.1")
		m.rule("one", `{}`)
		suite.Write(t, m.Config, "h2UpgradePolicy: UPGRADE\n")
		protocol("the mesh", "HTTP/2.0")
		m.rule("one", `{connectionPool: {http: {h2UpgradePolicy: DO_NOT_UPGRADE}}}`)
		protocol("a rule against the mesh", "HTTP/1.1")
		suite.Write(t, m.Config, "h2UpgradePolicy: DO_NOT_UPGRADE\n")
	})
	t.Run("RequestsPerConnection", func(t *testing.T) {
		m.takes("one", 80, `{connectionPool: {tcp: {connectTimeout: 7s}}}`, `"connect_timeout": "7s"`)
		c := m.client(true) // one connection, so one thread of the gateway
		if n := remotes(c, 5); n != 1 {
			t.Errorf("5 requests have %d connections", n)
		}
		m.takes("one", 80, `{connectionPool: {http: {maxRequestsPerConnection: 1}}}`, `"max_requests_per_connection": 1`)
		if n := remotes(c, 5); n != 5 {
			t.Errorf("5 requests have %d connections where each should have its own", n)
		}
	})
	t.Run("IdleTimeout", func(t *testing.T) {
		m.takes("one", 80, `{connectionPool: {http: {idleTimeout: 0.2s}}}`, `"idle_timeout": "0.200s"`)
		if got := m.get(m.client(true), "/one"); got.status != http.StatusOK {
			t.Errorf("%+v", got)
		}
		suite.Eventually(t, "the idle connection to the server ends", func() bool { return s.open.Load() == 0 })
	})
	t.Run("Duration", func(t *testing.T) {
		m.takes("one", 80, `{connectionPool: {tcp: {maxConnectionDuration: 0.3s}}}`, `"max_connection_duration": "0.300s"`)
		c := m.client(true)
		first := m.get(c, "/one").remote
		suite.Eventually(t, "a busy connection to the server ends", func() bool { return m.get(c, "/one").remote != first })
		m.rule("tcp", `{connectionPool: {tcp: {maxConnectionDuration: 0.3s}}}`)
		suite.Eventually(t, "a busy connection of a client ends", func() bool {
			c, _, err := m.connect()
			if err != nil {
				return false
			}
			defer c.Close()
			for range 100 { // for at least a second
				if _, err := io.WriteString(c, "more\n"); err != nil {
					return true
				}
				time.Sleep(10 * time.Millisecond)
			}
			return false
		})
	})
	t.Run("Connections", func(t *testing.T) {
		m.takes("tcp", 90, `{connectionPool: {tcp: {maxConnections: 1}}}`, `"max_connections": 1`)
		first, _, err := m.connect()
		must.Succeed(t, err)
		if second, line, err := m.connect(); err == nil {
			_ = second.Close()
			t.Errorf("a second connection gets %s", line)
		}
		_ = first.Close()
		m.sees("a connection once the first has ended", `"hello"`)
	})
	t.Run("Keepalive", func(t *testing.T) {
		for _, c := range []struct {
			rule, says string
			most       int64 // the seconds until the first probe; 0 means none
		}{
			{`{connectionPool: {tcp: {connectTimeout: 9s}}}`, `"connect_timeout": "9s"`, 0},
			{`{connectionPool: {tcp: {tcpKeepalive: {time: 1800s, interval: 30s, probes: 4}}}}`, `"keepalive_time": 1800`, 1800},
		} {
			m.takes("tcp", 90, c.rule, c.says)
			conn, _, err := m.connect()
			must.Succeed(t, err)
			suite.Eventually(t, fmt.Sprintf("probes after %d s", c.most), func() bool {
				kind, left := m.timer("gateway", "15000A0A:2382") // 10.10.0.21:9090
				return c.most == 0 && kind == "00" || c.most > 0 && kind == "02" && left > 0 && left <= c.most
			})
			_ = conn.Close()
		}
	})
	t.Run("Pending", func(t *testing.T) {
		m.takes("one", 80, `{connectionPool: {tcp: {maxConnections: 1}, http: {http1MaxPendingRequests: 1}}}`, `"max_pending_requests": 1`)
		m.refuses(s, "/one/hold", 5, 3, true)
	})
	t.Run("Requests", func(t *testing.T) {
		m.takes("one", 80, `{connectionPool: {http: {http2MaxRequests: 2}}}`, `"max_requests": 2`)
		m.refuses(s, "/one/hold", 5, 3, true)
	})
	t.Run("Retries", func(t *testing.T) {
		m.takes("one", 80, `{connectionPool: {http: {maxRetries: 1}}}`, `"max_retries": 1`)
		m.refuses(s, "/again", 4, 3, false)
		m.takes("one", 80, `{retryBudget: {percent: 1, minRetryConcurrency: 2}}`, `"min_retry_concurrency": 2`)
		m.refuses(s, "/again", 4, 2, false)
		m.takes("one", 80, `{retryBudget: {percent: 1, minRetryConcurrency: 4}}`, `"min_retry_concurrency": 4`)
		m.refuses(s, "/again", 4, 0, false)
	})
}

// timer returns the kernel's timer of a connection from a pod: its kind, and the remaining seconds.
func (m destinationRuleMesh) timer(pod, remote string) (kind string, left int64) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), time.Minute)
	defer cancel()
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, "cat", "/proc/net/tcp")
	cmd.Stdout = &said
	err := m.Pod(pod).Location.Start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	must.Succeed(m.t, err)
	for line := range strings.Lines(said.String()) {
		if f := strings.Fields(line); len(f) > 5 && f[2] == remote && f[3] == "01" {
			of, ticks, _ := strings.Cut(f[5], ":")
			n, err := strconv.ParseInt(ticks, 16, 64)
			must.Succeed(m.t, err)
			return of, n / 100
		}
	}
	return "", 0
}

// TestWarmup: a new endpoint gets few requests at first, and its full share in the end.
func TestWarmup(t *testing.T) {
	m := startDestinationRule(t, "")
	m.serveHTTP("one", 8080)
	m.serveHTTP("two", 8080)
	file := filepath.Join(m.Dir, "two.yaml")
	without := suite.NamespacesYAML("b") // an empty file could be half-written
	suite.Write(t, file, without)
	m.takes("web", 80, `{loadBalancer: {simple: ROUND_ROBIN, warmup: {duration: 3s, minimumPercent: 5, aggression: 1}}}`,
		`"slow_start_window": "3s"`)
	const n = 60
	c := m.client(true)
	second := func() (by int) {
		for range n {
			switch got := m.get(c, "/"); got.server {
			case "one":
			case "two":
				by++
			default:
				t.Errorf("%+v", got)
			}
		}
		return by
	}
	known := func() bool {
		clusters, err := m.Pod("gateway").Proxy.Get(t.Context(), "/clusters")
		return err == nil && strings.Contains(string(clusters), "10.10.0.22:8080::health_flags")
	}
	suite.Eventually(t, "one endpoint is left", func() bool { return !known() })
	suite.Eventually(t, "a new endpoint has few of the requests", func() bool {
		time.Sleep(3 * time.Second) // the first endpoint is warm then
		suite.Write(t, file, twoYAML)
		suite.Eventually(t, "the endpoint has come", known)
		if got := second(); got <= n/4 {
			return true
		}
		suite.Write(t, file, without) // too late to see
		suite.Eventually(t, "the endpoint has gone", func() bool { return !known() })
		return false
	})
	suite.Eventually(t, "it has its share of them", func() bool { return second() >= n*2/5 })
}
