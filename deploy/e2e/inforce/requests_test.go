package inforce

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/echo"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

const (
	requestTimeout = 30 * time.Second
	// total is how many requests all changes together meet with -short, and each change meets otherwise.
	total = 10_000
	// changes is how many changes are followed by requests through all proxies, at least.
	changes = 20
)

// each returns how many requests a step sends through each proxy.
func each() int {
	if testing.Short() {
		return total/(proxies*changes) + 1
	}
	return total / proxies
}

// asker asks through one proxy. It returns what the answer says.
type asker func(ctx context.Context, i int) (string, error)

// meet sends requests through proxies, all at the same time, and fails unless all answers are these. ask returns the
// asker of a proxy, or nil if the step does not concern it. Each proxy gets new connections.
func (m *mesh) meet(t *testing.T, want string, ask func(p *member) (asker, func())) {
	t.Helper()
	m.meetAll(t, func(string, int) string { return want }, ask)
}

// meetAll is meet with an answer for each request.
func (m *mesh) meetAll(t *testing.T, want func(proxy string, i int) string, ask func(p *member) (asker, func())) {
	t.Helper()
	var all sync.WaitGroup
	var mu sync.Mutex
	wrong := map[string]int{}
	began, sent := time.Now(), m.requests.Load()
	for _, p := range m.proxies {
		one, end := ask(p)
		if one == nil {
			continue
		}
		all.Go(func() {
			defer end()
			for i := range each() {
				ctx, cancel := context.WithTimeout(m.ctx, requestTimeout)
				got, err := one(ctx, i)
				cancel()
				m.requests.Add(1)
				if err != nil {
					got = err.Error()
				}
				if is := want(p.Node.Name, i); got != is {
					mu.Lock()
					wrong[fmt.Sprintf("%s: request %d meets %q, want %q", p.Node.Name, i, got, is)]++
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	sent = m.requests.Load() - sent
	t.Logf("%d requests in %s", sent, time.Since(began).Round(time.Millisecond))
	if sent == 0 {
		t.Error("there were no requests")
	}
	if len(wrong) > 0 {
		var lines []string
		for line := range wrong {
			lines = append(lines, line)
		}
		slices.Sort(lines)
		t.Errorf("%d requests meet something else, among them\n%s", len(wrong), strings.Join(lines[:min(10, len(lines))], "\n"))
	}
}

// route returns what calls of a path of the server, through a proxy, say: the status, the header that a version of the
// route sets, and the pod that answers. A sidecar is called from its pod, and a gateway from outside.
func route(path string, header ...string) func(p *member) (asker, func()) {
	return func(p *member) (asker, func()) {
		if p.client == nil {
			return get(p.Location.DialContext, serverAddr+":80", "server.shop.svc.cluster.local", path, header...)
		}
		return get(p.client.Location.DialContext, p.Node.Addr.String()+":8080", "server.example.com", path, header...)
	}
}

// inbound is route for calls of the pods of sidecars by another pod.
func (m *mesh) inbound(path string) func(p *member) (asker, func()) {
	return func(p *member) (asker, func()) {
		if p.client == nil {
			return get(m.client.Location.DialContext, p.Node.Addr.String()+":8080", "web.shop.svc.cluster.local", path)
		}
		return route(path)(p)
	}
}

type dial = func(ctx context.Context, network, addr string) (net.Conn, error)

// get returns an asker that sends GET requests on one connection.
func get(from dial, address, host, path string, header ...string) (asker, func()) {
	transport := &http.Transport{DialContext: from}
	return func(ctx context.Context, _ int) (string, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
		if err != nil {
			return "", err
		}
		r.Host = host
		for i := 0; i+1 < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		return answer(transport.RoundTrip(r))
	}, transport.CloseIdleConnections
}

// answer returns what a response says.
func answer(resp *http.Response, err error) (string, error) {
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	var a echo.Answer
	if resp.StatusCode == http.StatusOK {
		if err := json.Unmarshal(text, &a); err != nil {
			return "", fmt.Errorf("%.100s: %w", text, err)
		}
	}
	return strings.Join(strings.Fields(fmt.Sprint(resp.StatusCode, " ", resp.Header.Get("x-version"), " ", a.Name)), " "), nil
}

// port is route for another port of a gateway.
func (m *mesh) port(number int) func(p *member) (asker, func()) {
	return func(p *member) (asker, func()) {
		if p.client == nil {
			return nil, nil
		}
		one, end := get(p.client.Location.DialContext, fmt.Sprintf("%s:%d", p.Node.Addr, number), "server.example.com", "/")
		return func(ctx context.Context, i int) (string, error) {
			text, err := one(ctx, i)
			if errors.Is(err, syscall.ECONNREFUSED) {
				return "refused", nil
			}
			return text, err
		}, end
	}
}

// line is a connection of a sidecar's pod over TCP, which says the name of the server that answers. Each request is a
// connection.
func line(address string) func(p *member) (asker, func()) {
	return func(p *member) (asker, func()) {
		if p.client != nil {
			return nil, nil
		}
		return func(ctx context.Context, _ int) (string, error) {
			c, err := p.Location.DialContext(ctx, "tcp", address)
			if err != nil {
				return "", err
			}
			defer c.Close()
			if _, err := fmt.Fprintln(c, "hello"); err != nil {
				return "closed", nil
			}
			text, err := bufio.NewReader(c).ReadString('\n')
			if err != nil {
				return "closed", nil
			}
			return strings.TrimSuffix(text, " hello\n"), nil
		}, func() {}
	}
}

// certificate is a TLS connection to a gateway, which says the serial number of its certificate. Each request is a
// connection.
func (m *mesh) certificate(p *member) (asker, func()) {
	if p.client == nil {
		return nil, nil
	}
	return func(ctx context.Context, _ int) (string, error) {
		c, err := p.client.Location.DialContext(ctx, "tcp", p.Node.Addr.String()+":8443")
		if errors.Is(err, syscall.ECONNREFUSED) {
			return "refused", nil
		}
		if err != nil {
			return "", err
		}
		defer c.Close()
		secure := tls.Client(c, &tls.Config{ServerName: "server.example.com", InsecureSkipVerify: true, MinVersion: tls.VersionTLS12})
		if err := secure.HandshakeContext(ctx); err != nil {
			return "", err
		}
		return secure.ConnectionState().PeerCertificates[0].SerialNumber.String(), nil
	}, func() {}
}

// logged waits until the log of each proxy has a line for each request of a path, and fails if one has more.
func (m *mesh) logged(t *testing.T, path string, want int) {
	t.Helper()
	var counts map[string]int
	suite.Eventually(t, fmt.Sprintf("%d lines for %s in each log", want, path), func() bool {
		counts = map[string]int{}
		enough := true
		for _, p := range m.proxies {
			text, err := os.ReadFile(p.Proxy.LogFile())
			must.Succeed(t, err)
			counts[p.Node.Name] = strings.Count(string(text), "GET "+path+" ")
			enough = enough && counts[p.Node.Name] >= want
		}
		return enough
	})
	for name, n := range counts {
		if n != want {
			t.Errorf("the log of %s has %d lines for %s, want %d", name, n, path, want)
		}
	}
}
