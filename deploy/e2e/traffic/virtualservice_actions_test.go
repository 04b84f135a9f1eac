package traffic

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

const actionsHost = "actions.a.svc.cluster.local"

// actionsYAML has a service with both servers, and a route for each path.
var actionsYAML = `apiVersion: v1
kind: Service
metadata: {name: actions, namespace: a}
spec: {clusterIP: 10.96.0.20, selector: {web: "yes"}, ports: [{name: http, port: 80, targetPort: 8080}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: actions, namespace: a}
spec: {host: actions, subsets: [{name: v1, labels: {version: v1}}, {name: v2, labels: {version: v2}}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: actions, namespace: a}
spec:
  hosts: [actions]
  http:
  - match: [{uri: {prefix: /codes}}]
    route: [{destination: {host: actions}}]
    retries: {attempts: 2, retryOn: "418,retriable-4xx"}
  - match: [{uri: {prefix: /none}}]
    route: [{destination: {host: actions}}]
    retries: {attempts: 0}
  - match: [{uri: {prefix: /try}}]
    route: [{destination: {host: actions}}]
    retries: {attempts: 1, perTryTimeout: 0.5s, retryOn: gateway-error}
  - match: [{uri: {prefix: /timeout}}]
    route: [{destination: {host: actions}}]
    timeout: 0.5s
  - match: [{uri: {prefix: /backoff}}]
    route: [{destination: {host: actions}}]
    retries: {attempts: 3, retryOn: "503", backoff: 100000s}
    timeout: 1s
  - match: [{uri: {prefix: /others}}]
    route: [{destination: {host: actions}}]
    retries: {attempts: 1, retryOn: "503"}
  - match: [{uri: {prefix: /any}}]
    route: [{destination: {host: actions}}]
    retries: {attempts: 1, retryOn: "503", retryIgnorePreviousHosts: false}
  - match: [{uri: {prefix: /mirror}}]
    route: [{destination: {host: actions, subset: v1}}]
    mirror: {host: shadow}
    mirrorPercentage: {value: 25}
  - match: [{uri: {prefix: /abort}}]
    route: [{destination: {host: actions, subset: v1}}]
    fault: {abort: {percentage: {value: 25}, httpStatus: 418}}
  - match: [{uri: {prefix: /delay}}]
    route: [{destination: {host: actions, subset: v1}}]
    fault: {delay: {percentage: {value: 100}, fixedDelay: 0.5s}}
  - match: [{uri: {prefix: /never}}]
    route: [{destination: {host: actions, subset: v1}}]
    fault: {delay: {percentage: {value: 0}, fixedDelay: 1000s}, abort: {percentage: {value: 0}, httpStatus: 418}}
  - match: [{uri: {prefix: /cors/}}]
    route: [{destination: {host: actions, subset: v1}}]
    corsPolicy: &cors
      allowOrigins: [{exact: "http://good.example.com"}, {regex: "http://.*\\.good\\.example\\.com"}]
      allowMethods: [GET, PUT]
      allowHeaders: [x-a, x-b]
      exposeHeaders: [x-c]
      maxAge: 60s
      allowCredentials: true
      unmatchedPreflights: IGNORE
  - match: [{uri: {prefix: /cors-forward/}}]
    route: [{destination: {host: actions, subset: v1}}]
    corsPolicy: {<<: *cors, unmatchedPreflights: FORWARD}
  - match: [{uri: {prefix: /headers}}]
    headers: {request: {set: {x-route: all}}, response: {add: {x-route: all}}}
    route:
    - destination: {host: actions, subset: v1}
      weight: 50
      headers: {request: {set: {x-to: one}, add: {x-more: "1"}, remove: [x-gone]}, response: {set: {x-by: one}, remove: [x-path]}}
    - destination: {host: actions, subset: v2}
      weight: 50
      headers: {request: {set: {x-to: two, ":authority": two.example.com}}, response: {set: {x-by: two}}}
  - match: [{uri: {prefix: /redirect/port}}]
    redirect: {uri: /new, port: 8443}
  - match: [{uri: {prefix: /redirect/request}}]
    redirect: {authority: x.example.com, derivePort: FROM_REQUEST_PORT, redirectCode: 307}
  - match: [{uri: {prefix: /redirect/default}}]
    redirect: {scheme: https, derivePort: FROM_PROTOCOL_DEFAULT, redirectCode: 302}
  - match: [{uri: {prefix: /redirect/prefix}}]
    redirect: {prefixRewrite: /moved, redirectCode: 308}
  - match: [{uri: {prefix: /counted}, statPrefix: counted}]
    route: [{destination: {host: actions, subset: v1}}]
  - match: [{authority: {exact: "actions.a.svc.cluster.local:8888"}}]
    route: [{destination: {host: actions, subset: v2}}]
  - route: [{destination: {host: actions, subset: v1}}]
`

// answer makes a server do what the headers of a request say: fail with a status, wait until the client is gone, or do
// so only at the first attempt. The body contains the headers.
func (m *virtualServiceMesh) answer(server string, w http.ResponseWriter, r *http.Request) {
	if id := r.Header.Get("X-Id"); id != "" {
		all, _ := m.attempts.LoadOrStore(id, []string(nil))
		m.attempts.Store(id, append(slices.Clone(all.([]string)), server)) // one attempt at a time
	}
	if r.Header.Get("X-First") == "" || r.Header.Get("X-Envoy-Attempt-Count") == "1" {
		if r.Header.Get("X-Wait") != "" {
			<-r.Context().Done()
			return
		}
		if code, err := strconv.Atoi(r.Header.Get("X-Fail")); err == nil {
			w.WriteHeader(code)
			return
		}
	}
	_ = json.NewEncoder(w).Encode(r.Header)
}

// virtualServiceReply is the client's view of a response.
type virtualServiceReply struct {
	response
	seen     http.Header // the request's headers, as the server saw them
	took     time.Duration
	attempts []string // the servers of the attempts
}

// call calls the service actions from the client. headers are alternating names and values; Host is the host of the
// request.
func (m *virtualServiceMesh) call(method, path string, headers ...string) virtualServiceReply {
	m.t.Helper()
	r := request{from: "client", address: "10.96.0.20:80", method: method, path: path, host: actionsHost, headers: map[string]string{}}
	for i := 0; i < len(headers); i += 2 {
		r.headers[headers[i]] = headers[i+1]
	}
	if host := r.headers["Host"]; host != "" {
		r.host = host
		delete(r.headers, "Host")
	}
	began := time.Now()
	id := fmt.Sprint(began.UnixNano())
	r.headers["X-Id"] = id
	a, err := m.do(r)
	must.Succeed(m.t, err)
	got := virtualServiceReply{response: a, took: time.Since(began)}
	_ = json.Unmarshal(a.body, &got.seen) // A response of a proxy has no headers in its body.
	if all, ok := m.attempts.Load(id); ok {
		got.attempts = all.([]string)
	}
	return got
}

// share calls n times, and checks the percentage of the calls of a kind, within five standard deviations.
func (m *virtualServiceMesh) share(what string, n int, percent float64, is func() bool) {
	m.t.Helper()
	got := 0
	for range n {
		if is() {
			got++
		}
	}
	p := percent / 100
	if bound := 5 * math.Sqrt(p*(1-p)*float64(n)); math.Abs(float64(got)-p*float64(n)) > bound {
		m.t.Errorf("%s: %d of %d, want %.0f +- %.0f", what, got, n, p*float64(n), bound)
	}
}

// TestActions: routes retry, time out, mirror, inject faults, answer preflights, change headers and redirect.
func TestActions(t *testing.T) {
	m := startVirtualService(t, actionsYAML)
	suite.Eventually(t, "the client has the routes", func() bool { return m.call("GET", "/none").status == http.StatusOK })

	t.Run("Retries", func(t *testing.T) {
		for _, x := range []struct {
			name, path string
			headers    []string
			status     int
			attempts   int
		}{
			{"a code that is named", "/codes", []string{"X-Fail", "418"}, 418, 3},
			{"a condition that is named", "/codes", []string{"X-Fail", "409"}, 409, 3},
			{"another code", "/codes", []string{"X-Fail", "503"}, 503, 1},
			{"a code that is named, once", "/codes", []string{"X-Fail", "418", "X-First", "y"}, 200, 2},
			{"no retries", "/none", []string{"X-Fail", "503"}, 503, 1},
			{"what is retried by default: no answers", "/", []string{"X-Fail", "503"}, 503, 1},
			{"a try that takes too long, once", "/try", []string{"X-Wait", "y", "X-First", "y"}, 200, 2},
			{"tries that take too long", "/try", []string{"X-Wait", "y"}, 504, 2},
			{"a request that takes too long", "/timeout", []string{"X-Wait", "y"}, 504, 1},
			{"a retry that would come too late", "/backoff", []string{"X-Fail", "503"}, 504, 1},
		} {
			if got := m.call("GET", x.path, x.headers...); got.status != x.status || len(got.attempts) != x.attempts {
				t.Errorf("%s: %d after %d attempts, want %d after %d", x.name, got.status, len(got.attempts), x.status, x.attempts)
			}
		}
		same := func(path string) bool {
			got := m.call("GET", path, "X-Fail", "503").attempts
			if len(got) != 2 {
				t.Errorf("%s: attempts at %q", path, got)
			}
			return len(got) == 2 && got[0] == got[1]
		}
		n := 0
		for range 60 {
			if same("/others") {
				n++
			}
		}
		if n > 15 { // Envoy tries up to six times, and one of 64 requests gets the same server twice
			t.Errorf("%d of 60 retries are at the same server", n)
		}
		suite.Eventually(t, "a retry at the same server, where any may be asked", func() bool { return same("/any") })
	})
	t.Run("Mirror", func(t *testing.T) {
		before, n := m.shadowed.Load(), int32(400)
		for range n {
			if got := m.call("GET", "/mirror"); got.status != http.StatusOK || got.header.Get("X-Server") != "one" {
				t.Errorf("%+v", got)
			}
		}
		// Copies arrive after the answers, so their share is awaited.
		const p = 0.25
		bound := int32(5 * math.Sqrt(p*(1-p)*float64(n)))
		suite.Eventually(t, "the mirror has its share", func() bool { return m.shadowed.Load()-before >= n/4-bound })
		if got := m.shadowed.Load() - before; got > n/4+bound {
			t.Errorf("the mirror has %d requests of %d, want %d +- %d", got, n, n/4, bound)
		}
	})
	t.Run("Faults", func(t *testing.T) {
		m.share("aborted requests", 400, 25, func() bool {
			got := m.call("GET", "/abort")
			if got.status != 418 && got.status != 200 || (got.status == 418) != (got.header.Get("X-Server") == "") {
				t.Errorf("%+v", got)
			}
			return got.status == 418
		})
		if got := m.call("GET", "/delay"); got.status != 200 || got.took < 400*time.Millisecond {
			t.Errorf("delayed: %+v", got)
		}
		if got := m.call("GET", "/never"); got.status != 200 {
			t.Errorf("no delay: %+v", got)
		}
	})
	t.Run("Preflights", func(t *testing.T) { m.preflights(t) })
	t.Run("Headers", func(t *testing.T) {
		by := map[string]bool{}
		suite.Eventually(t, "both destinations answer", func() bool {
			got := m.call("GET", "/headers", "x-gone", "yes", "x-more", "0", "x-to", "mine")
			to := got.header.Get("X-Server")
			by[to] = true
			seen := map[string][]string{"X-To": {to}, "X-Route": {"all"}, "X-More": {"0"}, "X-Gone": {"yes"}}
			host, path := "two.example.com", "/headers"
			if to == "one" {
				seen["X-More"], seen["X-Gone"], host, path = []string{"0", "1"}, nil, actionsHost, ""
			}
			for name, want := range seen {
				if values := strings.Split(strings.Join(got.seen[name], ","), ","); !slices.Equal(values, want) && (want != nil ||
					got.seen[name] != nil) {
					t.Errorf("%s saw %s %q, want %q", to, name, got.seen[name], want)
				}
			}
			for name, want := range map[string]string{"X-By": to, "X-Route": "all", "X-Host": host, "X-Path": path} {
				if value := got.header.Get(name); value != want {
					t.Errorf("the answer of %s has %s %q, want %q", to, name, value, want)
				}
			}
			return len(by) == 2
		})
	})
	t.Run("Redirects", func(t *testing.T) {
		for path, want := range map[string]string{
			"/redirect/port":      "301 http://" + actionsHost + ":8443/new",
			"/redirect/request":   "307 http://x.example.com:80/redirect/request",
			"/redirect/default/a": "302 https://" + actionsHost + "/redirect/default/a",
			"/redirect/prefix/a":  "308 http://" + actionsHost + "/moved/a",
		} {
			got := m.call("GET", path)
			if s := fmt.Sprint(got.status, " ", got.header.Get("Location")); s != want {
				t.Errorf("%s: %s, want %s", path, s, want)
			}
		}
	})
	t.Run("Authority", func(t *testing.T) {
		for host, want := range map[string]string{
			actionsHost: "one", actionsHost + ":80": "one", actionsHost + ":8888": "two", "actions": "one", "actions.a:80": "one",
			"actions:8888": "one",
		} {
			if got := m.call("GET", "/", "Host", host); got.header.Get("X-Server") != want {
				t.Errorf("%s: %+v, want %s", host, got, want)
			}
		}
	})
	t.Run("Stats", func(t *testing.T) {
		const name = `route\.counted\.upstream_rq_total$`
		count := func() (n int) {
			stats, err := m.Pod("client").Proxy.Stats(t.Context(), name)
			must.Succeed(t, err)
			for _, v := range stats {
				n += v
			}
			return n
		}
		before := count()
		m.call("GET", "/counted")
		m.call("GET", "/")
		suite.Eventually(t, "the route counts its request", func() bool { return count() == before+1 })
	})
}

// preflights sends the preflight requests of browsers.
func (m *virtualServiceMesh) preflights(t *testing.T) {
	preflight := func(path, origin string) virtualServiceReply {
		return m.call("OPTIONS", path, "Origin", origin, "Access-Control-Request-Method", "PUT")
	}
	for _, path := range []string{"/cors/", "/cors-forward/"} {
		for _, origin := range []string{"http://good.example.com", "http://very.good.example.com"} {
			got := preflight(path, origin)
			for name, want := range map[string]string{
				"Access-Control-Allow-Origin": origin, "Access-Control-Allow-Methods": "GET,PUT", "Access-Control-Allow-Headers": "x-a,x-b",
				"Access-Control-Max-Age": "60", "Access-Control-Allow-Credentials": "true", "X-Server": "",
			} {
				if value := got.header.Get(name); value != want {
					t.Errorf("%s from %s: %s is %q, want %q", path, origin, name, value, want)
				}
			}
			got = m.call("GET", path, "Origin", origin)
			if got.status != 200 || got.header.Get("Access-Control-Allow-Origin") != origin ||
				got.header.Get("Access-Control-Expose-Headers") != "x-c" {
				t.Errorf("%s from %s: %+v", path, origin, got)
			}
		}
	}
	for path, server := range map[string]string{"/cors/": "", "/cors-forward/": "one"} {
		got := preflight(path, "http://bad.example.com")
		if got.status != 200 || got.header.Get("X-Server") != server || got.header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("a preflight of another origin at %s: %+v", path, got)
		}
		got = m.call("GET", path, "Origin", "http://bad.example.com")
		if got.status != 200 || got.header.Get("X-Server") != "one" || got.header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("another origin at %s: %+v", path, got)
		}
	}
}
