package traffic

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
)

// virtualServiceYAML has three clients in two namespaces, and the servers of two services. Routes are for clients
// with the label tier, or for those of namespace b. There is no mutual TLS, so no proxy needs certificates.
var virtualServiceYAML = suite.NamespacesYAML("istio-system", "a", "b") + suite.PeerAuthenticationYAML("DISABLE") +
	`apiVersion: v1
kind: Service
metadata: {name: web, namespace: a}
spec: {clusterIP: 10.96.0.10, selector: {web: "yes"}, ports: [{name: http, port: 80, targetPort: 8080}]}
---
` +
	suite.ServiceYAML("shadow", "a", "10.96.0.11") +
	suite.PodYAML("client", "a", "10.10.0.11", "", suite.Sidecar+", tier: front") +
	suite.PodYAML("other", "a", "10.10.0.12", "", suite.Sidecar) +
	suite.PodYAML("stranger", "b", "10.10.0.13", "", suite.Sidecar) +
	suite.PodYAML("one", "a", "10.10.0.21", "", suite.Outside+`, web: "yes", version: v1`) +
	suite.PodYAML("two", "a", "10.10.0.22", "", suite.Outside+`, web: "yes", version: v2`) +
	suite.PodYAML("shadow", "a", "10.10.0.23", "", suite.Outside) +
	`apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: web, namespace: a}
spec:
  host: web
  subsets:
  - {name: v1, labels: {version: v1}}
  - {name: v2, labels: {version: v2}}
  - {name: cookie, trafficPolicy: {loadBalancer: {consistentHash: {httpCookie: {name: stay, path: /, ttl: 60s}}}}}
  - {name: query, trafficPolicy: {loadBalancer: {consistentHash: {httpQueryParameterName: user, ringHash: {minimumRingSize: 2048}}}}}
  - {name: header, trafficPolicy: {loadBalancer: {consistentHash: {httpHeaderName: x-user, maglev: {tableSize: 1009}}}}}
  - {name: source, trafficPolicy: {loadBalancer: {consistentHash: {useSourceIp: true}}}}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: a}
spec:
  hosts: [web.a.svc.cluster.local]
  http:
  - match: [{uri: {prefix: /mirrored}}]
    route: [{destination: {host: web, subset: v1}}]
    mirrors: [{destination: {host: shadow}, percentage: {value: 100}}]
  - match: [{uri: {prefix: /unmirrored}}]
    route: [{destination: {host: web, subset: v1}}]
    mirrors: [{destination: {host: shadow}, percentage: {value: 0}}]
  - match: [{uri: {prefix: /renamed}}]
    rewrite: {uri: /, authority: other.example.com}
    route: [{destination: {host: web, subset: v1}}]
  - match: [{uri: {prefix: /delegated}}]
    delegate: {name: part, namespace: b}
  - match: [{uri: {prefix: /private}}]
    delegate: {name: private, namespace: b}
  - match: [{uri: {prefix: /labels}, sourceLabels: {tier: front}}]
    route: [{destination: {host: web, subset: v2}}]
  - match: [{uri: {prefix: /namespace}, sourceNamespace: b}]
    route: [{destination: {host: web, subset: v2}}]
  - match: [{uri: {prefix: /cookie}}]
    route: [{destination: {host: web, subset: cookie}}]
  - match: [{uri: {prefix: /query}}]
    route: [{destination: {host: web, subset: query}}]
  - match: [{uri: {prefix: /header}}]
    route: [{destination: {host: web, subset: header}}]
  - match: [{uri: {prefix: /source}}]
    route: [{destination: {host: web, subset: source}}]
  - route: [{destination: {host: web, subset: v1}}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: part, namespace: b}
spec:
  http:
  - match: [{uri: {prefix: /delegated/two}}]
    route: [{destination: {host: web.a.svc.cluster.local, subset: v2}}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: private, namespace: b}
spec:
  exportTo: ["."]
  http: [{route: [{destination: {host: web.a.svc.cluster.local, subset: v2}}]}]
`

// virtualServiceMesh holds the pods and the counts of their servers.
type virtualServiceMesh struct {
	mesh
	shadowed atomic.Int32 // requests to the service shadow
	attempts sync.Map     // the servers of requests with an ID, in order
}

// virtualServiceAnswer is a server's view of a request.
type virtualServiceAnswer struct {
	status     int
	server     string // empty if a proxy answered
	host, path string // as the server saw them
	cookie     string // set by the response
}

// startVirtualService runs the mesh with more objects, and its servers.
func startVirtualService(t *testing.T, objects string) *virtualServiceMesh {
	t.Helper()
	m := &virtualServiceMesh{mesh: start(t, virtualServiceYAML, suite.MeshOptions{Files: map[string]string{"objects.yaml": objects}})}
	for _, name := range []string{"one", "two", "shadow"} {
		m.handle(name, 8080, func(w http.ResponseWriter, r *http.Request) {
			if name == "shadow" {
				m.shadowed.Add(1)
			}
			w.Header().Set("X-Server", name)
			w.Header().Set("X-Host", r.Host)
			w.Header().Set("X-Path", r.URL.Path)
			m.answer(name, w, r)
		})
	}
	return m
}

// get calls the service web from a pod. headers are alternating names and values.
func (m *virtualServiceMesh) get(pod, path string, headers ...string) (virtualServiceAnswer, error) {
	r := request{from: pod, address: "10.96.0.10:80", host: "web.a.svc.cluster.local", path: path, headers: map[string]string{}}
	for i := 0; i < len(headers); i += 2 {
		r.headers[headers[i]] = headers[i+1]
	}
	a, err := m.do(r)
	if err != nil {
		return virtualServiceAnswer{}, err
	}
	return virtualServiceAnswer{a.status, a.header.Get("X-Server"), a.header.Get("X-Host"), a.header.Get("X-Path"),
		a.header.Get("Set-Cookie")}, nil
}

// must calls get until the status is 200, because the pod's Envoy may not have the routes yet.
func (m *virtualServiceMesh) must(pod, path string, headers ...string) (got virtualServiceAnswer) {
	m.t.Helper()
	suite.Eventually(m.t, fmt.Sprintf("%s gets %s %v", pod, path, headers), func() bool {
		var err error
		got, err = m.get(pod, path, headers...)
		return err == nil && got.status == http.StatusOK
	})
	return got
}

// TestRoutes: requests follow the first matching route, which may be that of a delegate or apply to some clients only,
// and are rewritten for the server.
func TestRoutes(t *testing.T) {
	m := startVirtualService(t, "")
	for _, x := range []struct {
		pod, path, server string
	}{
		{"client", "/", "one"},
		{"client", "/delegated/two", "two"},
		{"client", "/delegated/else", "one"},
		{"client", "/private", "one"}, // its delegate does not apply to this client
		{"client", "/labels", "two"},
		{"other", "/labels", "one"},
		{"stranger", "/labels", "one"},
		{"client", "/namespace", "one"},
		{"stranger", "/namespace", "two"},
	} {
		if got := m.must(x.pod, x.path); got.server != x.server || got.host != "web.a.svc.cluster.local" || got.path != x.path {
			t.Errorf("%s gets %s: %+v, want %s", x.pod, x.path, got, x.server)
		}
	}
	if got := m.must("client", "/renamed/x"); got.host != "other.example.com" || got.path != "//x" && got.path != "/x" {
		t.Errorf("with another host: %+v", got)
	}
}

// TestMirror: the mirror gets a copy of each request or of none, and the client gets the answer of the route.
func TestMirror(t *testing.T) {
	m := startVirtualService(t, "")
	const n = 10
	for _, path := range []string{"/unmirrored", "/mirrored"} {
		for range n {
			if got := m.must("client", path); got.server != "one" {
				t.Errorf("%s: %+v", path, got)
			}
		}
	}
	suite.Eventually(t, "the mirror has what it should have", func() bool { return m.shadowed.Load() >= n })
	if got := m.shadowed.Load(); got != n {
		t.Errorf("the mirror has %d requests, want %d", got, n)
	}
}

// TestHash: requests with the same hash stay with one endpoint, and others are spread over all.
func TestHash(t *testing.T) {
	m := startVirtualService(t, "")
	m.must("client", "/")
	const n = 24
	servers := func(request func(i int) virtualServiceAnswer) []string {
		by := map[string]bool{}
		for i := range n {
			by[request(i).server] = true
		}
		return slices.Sorted(maps.Keys(by))
	}
	spread := func(what string, request func(i int) virtualServiceAnswer) {
		t.Helper()
		if got := servers(request); !slices.Equal(got, []string{"one", "two"}) {
			t.Errorf("%s: %v answer", what, got)
		}
	}
	stay := func(what string, request func(i int) virtualServiceAnswer) {
		t.Helper()
		if got := servers(request); len(got) != 1 || got[0] == "" {
			t.Errorf("%s: %v answer", what, got)
		}
	}
	cookie := ""
	spread("without a cookie", func(int) virtualServiceAnswer {
		got := m.must("client", "/cookie")
		name, _, _ := strings.Cut(got.cookie, ";")
		if !strings.HasPrefix(name, "stay=") || !strings.Contains(got.cookie, "Max-Age=60") {
			t.Errorf("no cookie is set: %+v", got)
		}
		cookie = name
		return got
	})
	stay("with a cookie", func(int) virtualServiceAnswer { return m.must("client", "/cookie", "Cookie", cookie) })
	spread("users in the query", func(i int) virtualServiceAnswer { return m.must("client", "/query?user="+strconv.Itoa(i)) })
	stay("one user in the query", func(i int) virtualServiceAnswer { return m.must("client", fmt.Sprintf("/query?i=%d&user=jane", i)) })
	spread("users in a header", func(i int) virtualServiceAnswer { return m.must("client", "/header", "x-user", strconv.Itoa(i)) })
	stay("one user in a header", func(int) virtualServiceAnswer { return m.must("client", "/header", "x-user", "jane") })
	stay("one client", func(int) virtualServiceAnswer { return m.must("client", "/source") })
}
