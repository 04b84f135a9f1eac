package traffic

import (
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/echo"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/histories"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/debug"
	"github.com/istiod-lite/istiod-lite/pilot/inspect"
)

// TestDrawnWorldsAgreeWithEnvoys draws worlds and requests, and compares what why says with what real Envoys answer:
// gateways with redirects and TLS of every mode, CORS, delegates, forwarded addresses, policies, mutual TLS, and Pods
// without proxies. An answer that depends on something may be either.
func TestDrawnWorldsAgreeWithEnvoys(t *testing.T) {
	seed, _ := histories.Seed(t)
	d := drawer{rand.New(rand.NewPCG(seed, 0))}
	worlds, each := 40, 50
	if testing.Short() {
		worlds = 8
	}
	log, config := loggingTo(t)
	m := start(t, drawnYAML, suite.MeshOptions{Files: map[string]string{"world.yaml": ""}, CA: true, Config: config})
	chain, key, roots, err := m.Issuer.Issue(t.Context(), "a", "visitor")
	must.Succeed(t, err)
	own, err := tls.X509KeyPair(chain, key)
	must.Succeed(t, err)
	encode := base64.StdEncoding.EncodeToString
	m.write("secret.yaml", fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: cert, namespace: a}\ntype: kubernetes.io/tls\n"+
		"data: {tls.crt: %s, tls.key: %s, ca.crt: %s}\n", encode(chain), encode(key), encode(roots)))
	serve := func(marker, yaml string) {
		m.write("world.yaml", yaml+"---\napiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: "+marker+
			", namespace: a}\nspec: {hosts: ["+marker+".example.net], ports: [{number: 7777, name: http, protocol: HTTP}], resolution: STATIC, "+
			"endpoints: [{address: 192.0.2.1}]}\n")
		m.settle(marker)
	}
	requests, depends := 0, 0
	var served []drawnWorld
	for n := range worlds {
		yaml := d.world()
		serve(fmt.Sprintf("marker-%d", n), yaml)
		for _, f := range m.findings() {
			if f.Code == "IST0106" { // the last good version of the object would stay
				t.Fatalf("world %d is not valid: %+v\n%s", n, f, yaml)
			}
		}
		i := m.inspection()
		served = append(served, drawnWorld{from: time.Now(), yaml: yaml, Inspection: i})
		failed := false
		for range each {
			r := d.request()
			requests++
			way, err := i.Why(inspect.Query{Source: r.source, Host: r.host, Port: uint32(r.port), Method: r.method, Path: r.path, Headers: r.headers,
				TLS: r.tls, Certificate: r.certificate, FromAddress: r.client(), Now: time.Now()})
			if err != nil {
				t.Errorf("world %d: %+v: %v", n, r, err)
				failed = true
				break
			}
			if len(way.Depends) > 0 {
				depends++
				continue
			}
			wrong, again := m.agrees(way, r, own)
			if wrong != "" {
				t.Errorf("world %d: %+v: %s", n, r, wrong)
				failed = true
			}
			if again { // a proxy did not have the world yet, and the lines of its log until now are of the one before
				served[n].from = time.Now()
			}
		}
		served[n].until = time.Now()
		if failed {
			t.Logf("world %d:\n%s", n, yaml)
		}
	}
	t.Logf("%d requests, of which %d depend on something", requests, depends)
	if depends > requests/4 {
		t.Errorf("%d of %d answers depend on something: the others are too few", depends, requests)
	}
	m.healthy()
	serve("marker-last", "") // without a policy that refuses the last requests
	m.explain(log, served)
}

// drawnWorld is a world and the time for which all proxies have it.
type drawnWorld struct {
	from, until time.Time
	yaml        string
	*inspect.Inspection
}

// changesUser reports whether a route may have given the request of a line the header x-user that the line has, or may
// have removed it: lines are written when the request has passed.
func (w drawnWorld) changesUser(line string) bool {
	return strings.Contains(w.yaml, "set: {x-user: mary}") && strings.Contains(line, ` "mary" `) ||
		strings.Contains(w.yaml, "remove: [x-user]") && !strings.Contains(line, ` "mary" `) && !strings.Contains(line, ` "jason" `)
}

// explain checks what why --log says of each line of the proxies' access logs, with the world of its time.
func (m mesh) explain(file string, worlds []drawnWorld) {
	m.t.Helper()
	const last = "/the-last-one"
	for _, r := range []request{
		{from: "client", address: "10.96.0.10:80", path: last}, {from: "plain", address: "10.10.0.11:8080", path: last},
		{from: "plain", address: "10.10.0.12:8080", path: last},
	} {
		_, err := m.do(r)
		must.Succeed(m.t, err)
	}
	var lines []string
	suite.Eventually(m.t, "the proxies have written their logs", func() bool { // they do so every ten seconds
		text, err := os.ReadFile(file)
		must.Succeed(m.t, err)
		lines = strings.Split(strings.TrimSpace(string(text)), "\n")
		return strings.Count(string(text), last) >= 3
	})
	explained, failed := 0, 0
	for _, line := range lines {
		text, _, _ := strings.Cut(strings.TrimPrefix(line, "["), "]")
		at, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			continue
		}
		n, _ := slices.BinarySearchFunc(worlds, at, func(w drawnWorld, at time.Time) int { return w.from.Compare(at) })
		if n == 0 || at.After(worlds[n-1].until) || strings.Contains(line, last) || worlds[n-1].changesUser(line) {
			continue
		}
		explained++
		wrongBefore := m.t.Failed()
		if explainLine(m.t, worlds[n-1].Inspection, line) {
			failed++
		}
		if !wrongBefore && m.t.Failed() {
			m.t.Logf("world %d of the first of these lines:\n%s", n-1, worlds[n-1].yaml)
		}
	}
	m.t.Logf("%d lines, of which %d are explained, %d of failures", len(lines), explained, failed)
	if explained < len(lines)/4 {
		m.t.Errorf("%d of %d lines are explained: too few", explained, len(lines))
	}
}

// settle waits until the server has read the world with a marker, and all proxies have acknowledged what it sent.
func (m mesh) settle(marker string) {
	m.t.Helper()
	suite.Eventually(m.t, "the proxies have "+marker, func() bool {
		for _, p := range []string{"client", "echo-1", "echo-2", "gateway"} {
			if p == "gateway" {
				continue
			}
			dump, err := m.Pod(p).Proxy.Get(m.t.Context(), "/clusters")
			if err != nil || !strings.Contains(string(dump), marker+".example.net") {
				return false
			}
		}
		for _, s := range page[[]debug.ProxyStatus](m, "/debug/syncz") {
			if s.ClusterSent != s.ClusterAcked || s.ListenerSent != s.ListenerAcked || s.RouteSent != s.RouteAcked ||
				s.EndpointSent != s.EndpointAcked {
				return false
			}
		}
		return true
	})
}

// agrees compares an answer with what real Envoys do. It returns what is wrong, or "", and whether it sent the request
// more than once: the proxies may not have the whole world at first.
func (m mesh) agrees(way *inspect.Way, r drawnRequest, own tls.Certificate) (wrong string, again bool) {
	for n := range 10 {
		if wrong = m.differs(way, r, own); wrong == "" {
			return "", n > 0
		}
		time.Sleep(100 * time.Millisecond)
	}
	return wrong, true
}

func (m mesh) differs(way *inspect.Way, r drawnRequest, own tls.Certificate) string {
	got, err := m.send(r, own)
	said := fmt.Sprintf("why says status %d (%s), answered %t, by %v", way.Status, way.Reason, way.Answered, way.Reaches())
	if err != nil {
		if way.Status == 0 {
			return ""
		}
		return fmt.Sprintf("the connection ends (%v), and %s", err, said)
	}
	var answer echo.Answer // It is empty if a proxy has answered.
	if got.status == http.StatusOK {
		_ = json.Unmarshal(got.body, &answer)
	}
	name := ""
	if answer.Name != "" {
		name = answer.Name + ".a"
	}
	if got.status != way.Status || way.Reached() != (name != "") || name != "" && !slices.Contains(way.Reaches(), name) {
		return fmt.Sprintf("gets %d of %q %.80s, and %s", got.status, name, got.body, said)
	}
	return ""
}

// send sends a request, over TLS if it asks for it.
func (m mesh) send(r drawnRequest, own tls.Certificate) (response, error) {
	conn, err := m.dial(r.from, r.address)
	if err != nil {
		return response{}, err
	}
	defer conn.Close()
	if r.tls {
		//nolint:gosec // The answer matters, and not who gives it.
		c := &tls.Config{ServerName: r.host, InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}
		if r.certificate {
			c.Certificates = []tls.Certificate{own}
		}
		conn = tls.Client(conn, c)
	}
	q := r.request
	if r.port != 80 && r.port != 443 {
		q.host = net.JoinHostPort(r.host, fmt.Sprint(r.port))
	}
	return q.exchange(conn)
}
