package traffic

import (
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// sessionsYAML has three servers of two Services, whose sessions are kept by a cookie and by a header, and a gateway.
var sessionsYAML = suite.NamespacesYAML("istio-system", "a") + suite.PeerAuthenticationYAML("DISABLE") +
	`apiVersion: v1
kind: Service
metadata: {name: web, namespace: a, labels: {istio.io/persistent-session: stay}}
spec: {clusterIP: 10.96.0.10, selector: {web: "yes"}, ports: [{name: http, port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: header, namespace: a, labels: {istio.io/persistent-session-header: x-stay}}
spec: {clusterIP: 10.96.0.11, selector: {web: "yes"}, ports: [{name: http, port: 80, targetPort: 8080}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: a}
spec: {hosts: [web.a.svc.cluster.local], gateways: [gateway], http: [{route: [{destination: {host: web}}]}]}
---
` + suite.GatewayPodYAML("gateway", "a", "10.10.0.12") + suite.GatewayYAML("gateway", "a", 8000) +
	suite.PodYAML("client", "a", "10.10.0.13", "", suite.Sidecar) + suite.PodYAML("outside", "a", "10.10.0.14", "", suite.Outside) +
	suite.PodYAML("two", "a", "10.10.0.22", "", suite.Outside+`, web: "yes"`) +
	suite.PodYAML("three", "a", "10.10.0.23", "", suite.Outside+`, web: "yes"`)

// TestSessions checks that requests with the cookie or the header of a response go to the server of that response, from
// a sidecar and through a gateway, also while the server drains, and that others do not.
func TestSessions(t *testing.T) {
	one := func(labels string) string {
		return suite.PodYAML("one", "a", "10.10.0.21", "", suite.Outside+`, web: "yes"`+labels)
	}
	m := start(t, sessionsYAML, suite.MeshOptions{Files: map[string]string{"one.yaml": one("")},
		Env: []string{names.SessionsVariable + "=true"}})
	for _, name := range []string{"one", "two", "three"} {
		m.handle(name, 8080, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) })
	}
	type way struct{ from, address, host string }
	call := func(w way, headers map[string]string) (string, http.Header) {
		t.Helper()
		r, err := m.do(request{from: w.from, address: w.address, host: w.host, headers: headers})
		must.Succeed(t, err)
		if r.status != http.StatusOK {
			t.Fatalf("%+v: status %d", w, r.status)
		}
		return string(r.body), r.header
	}
	servers := func(w way, headers map[string]string) []string {
		t.Helper()
		by := map[string]bool{}
		for range 40 {
			server, _ := call(w, headers)
			by[server] = true
		}
		return slices.Sorted(maps.Keys(by))
	}
	sessions := map[way]map[string]string{} // headers of a session of server one
	for _, w := range []way{
		{"client", "10.96.0.10:80", "web.a"}, {"client", "10.96.0.11:80", "header.a"}, {"outside", "10.10.0.12:8000", "web.a.svc.cluster.local"},
	} {
		if got := servers(w, nil); !slices.Equal(got, []string{"one", "three", "two"}) {
			t.Errorf("%+v without a session: %v", w, got)
		}
		suite.Eventually(t, "an answer of server one", func() bool {
			server, header := call(w, nil)
			if server != "one" {
				return false
			}
			cookie, _, _ := strings.Cut(header.Get("Set-Cookie"), ";")
			sessions[w] = map[string]string{"Cookie": cookie}
			if value := header.Get("X-Stay"); value != "" {
				sessions[w] = map[string]string{"X-Stay": value}
			} else if !strings.HasPrefix(cookie, "stay=") || !strings.Contains(header.Get("Set-Cookie"), "Path=/") {
				t.Errorf("%+v: cookie %q", w, header.Get("Set-Cookie"))
			}
			return true
		})
		if got := servers(w, sessions[w]); !slices.Equal(got, []string{"one"}) {
			t.Errorf("%+v with a session: %v", w, got)
		}
	}
	m.write("one.yaml", one(", "+names.LabelDraining+`: "true"`))
	for w, session := range sessions {
		suite.Eventually(t, "no new session at a server that drains", func() bool { return !slices.Contains(servers(w, nil), "one") })
		if got := servers(w, session); !slices.Equal(got, []string{"one"}) {
			t.Errorf("%+v with a session at a server that drains: %v", w, got)
		}
	}
}
