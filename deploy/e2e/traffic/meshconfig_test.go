package traffic

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// meshConfigYAML has a gateway with a client outside the mesh, two clients in two namespaces, a server with a sidecar,
// one that listens only on loopback, and one without a sidecar. All services are exported to all namespaces, except
// "hidden", which sets nothing.
var meshConfigYAML = suite.NamespacesYAML("istio-system", "root", "a", "b") + suite.PeerAuthenticationYAML("DISABLE") +
	strings.ReplaceAll(suite.PeerAuthenticationYAML("DISABLE"), "istio-system", "root") +
	serviceYAML("web", "web", "10.96.0.10", "*", "{name: http, port: 80, targetPort: 8080}") +
	serviceYAML("local", "local", "10.96.0.11", "*", "{name: http, port: 80, targetPort: 8080}") +
	serviceYAML("bare", "bare", "10.96.0.12", "*", "{name: http, port: 80, targetPort: 8080}") +
	serviceYAML("first", "bare", "10.96.0.13", "*", "{port: 70, targetPort: 7070}") +
	suite.ServiceYAML("hidden", "a", "10.96.0.14") +
	suite.GatewayPodYAML("gateway", "a", "10.10.0.12") +
	suite.GatewayYAML("gateway", "a", 8000) +
	suite.PodYAML("client", "a", "10.10.0.13", "", suite.Outside) +
	suite.PodYAML("caller", "a", "10.10.0.14", "", suite.Sidecar) +
	suite.PodYAML("stranger", "b", "10.10.0.15", "", suite.Sidecar) +
	suite.PodYAML("web", "a", "10.10.0.21", "", suite.Sidecar) +
	suite.PodYAML("local", "a", "10.10.0.22", "", suite.Sidecar) +
	suite.PodYAML("bare", "a", "10.10.0.23", "", suite.Outside) +
	suite.PodYAML("hidden", "a", "10.10.0.24", "", suite.Outside) +
	`apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: gateway, namespace: a}
spec: {hosts: ["*"], gateways: [gateway], http: [{route: [{destination: {host: bare}}]}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: a}
spec:
  hosts: [web]
  http: [{rewrite: {authority: other.example.com}, route: [{destination: {host: web}}], headers: {response: {set: {x-route: "yes"}}}}]
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: bare, namespace: a}
spec: {host: bare, trafficPolicy: {connectionPool: {http: {h2UpgradePolicy: UPGRADE}}}}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: denied, namespace: root}
spec: {action: DENY, rules: [{to: [{operation: {paths: [/denied]}}]}]}
`

// serviceYAML is a service that is exported to namespaces.
func serviceYAML(name, app, address, exportTo, port string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: %s, namespace: a, annotations: {networking.istio.io/exportTo: "%s"}}
spec: {clusterIP: %s, selector: {app: %s}, ports: [%s]}
---
`, name, exportTo, address, app, port)
}

// settings are the settings under test. LOG is the file of access logs.
const settings = `
rootNamespace: root
defaultServiceExportTo: ["."]
defaultVirtualServiceExportTo: ["."]
defaultDestinationRuleExportTo: ["."]
outboundTrafficPolicy: {mode: REGISTRY_ONLY}
inboundTrafficPolicy: {mode: LOCALHOST}
protocolDetectionTimeout: 0.2s
accessLogFile: LOG
accessLogEncoding: TEXT
accessLogFormat: "own %PROTOCOL% %RESPONSE_CODE% %REQ(X-ID)%\n"
outboundClusterStatName: "out_%SERVICE%_%SERVICE_PORT%"
inboundClusterStatName: "in_%SERVICE%_%SERVICE_PORT%"
defaultHttpRetryPolicy: {attempts: 3, retryOn: "418"}
defaultConfig:
  gatewayTopology: {numTrustedProxies: 2, forwardClientCertDetails: ALWAYS_FORWARD_ONLY}
  proxyHeaders:
    server: {value: own}
    requestId: {disabled: true}
    attemptCount: {disabled: true}
    envoyDebugHeaders: {disabled: true}
    xForwardedHost: {enabled: true}
    xForwardedPort: {enabled: true}
  connectionSettings:
    httpHeadersWithUnderscoresAction: HEADERS_WITH_UNDERSCORES_REJECT_REQUEST
    httpPathWithEscapedSlashesAction: REJECT_REQUEST
    httpMergeSlashes: true
    httpIdleTimeout: 0.5s
    httpRequestHeadersTimeout: 0.4s
`

// meshConfigMesh holds the pods and the counts of their servers.
type meshConfigMesh struct {
	mesh
	log     string
	teapots atomic.Int32 // requests for /teapot
}

// startMeshConfig runs the mesh and its servers. The server of the pod local listens only on loopback.
func startMeshConfig(t *testing.T, config string) *meshConfigMesh {
	t.Helper()
	log := filepath.Join(t.TempDir(), "access.txt")
	m := &meshConfigMesh{mesh: start(t, meshConfigYAML, suite.MeshOptions{Config: strings.ReplaceAll(config, "LOG", log)}), log: log}
	for _, pod := range []string{"web", "bare", "hidden"} {
		m.handle(pod, 8080, m.ServeHTTP)
	}
	s := &http.Server{Protocols: bothProtocols(), Handler: m} //nolint:gosec // Only the test's own clients reach it.
	m.serve("local", "127.0.0.1", 8080, s.Serve, func() { _ = s.Close() })
	return m
}

// call has a pod call port 80 of an address, unless it has another port. headers are names and values in turn.
func (m *meshConfigMesh) call(pod, address, host, path string, headers ...string) response {
	m.t.Helper()
	r := request{from: pod, address: address, host: host, path: path, headers: map[string]string{}}
	for i := 0; i < len(headers); i += 2 {
		r.headers[headers[i]] = headers[i+1]
	}
	resp, err := m.do(r)
	must.Succeed(m.t, err)
	return resp
}

// ServeHTTP answers with the request as the server saw it, in headers.
func (m *meshConfigMesh) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Saw-Protocol", r.Proto)
	w.Header().Set("Saw-Path", r.RequestURI)
	w.Header().Set("Saw-Host", r.Host)
	for name, values := range r.Header {
		w.Header().Set("Saw-"+name, strings.Join(values, ","))
	}
	if r.URL.Path == "/teapot" {
		m.teapots.Add(1)
		w.WriteHeader(http.StatusTeapot)
	}
}

// observe makes the calls, and returns the result of each.
func (m *meshConfigMesh) observe() map[string]string {
	const gateway = "10.10.0.12:8000"
	got := map[string]string{}
	for _, pod := range []string{"caller", "stranger"} {
		web := m.call(pod, "10.96.0.10:80", "web.a", "/", "X-Id", "from-"+pod)
		got[pod+" has the route of web"] = fmt.Sprint(web.status, " ", web.header.Get("X-Route"))
		got[pod+" calls bare by"] = m.call(pod, "10.96.0.12:80", "bare.a", "/").header.Get("Saw-Protocol")
		got[pod+" calls hidden"] = fmt.Sprint(m.call(pod, "10.96.0.14:80", "hidden.a", "/").status)
	}
	web := m.call("caller", "10.96.0.10:80", "web.a", "/")
	got["server"] = web.header.Get("Server")
	got["request ID"] = fmt.Sprint(web.header.Get("Saw-X-Request-Id") != "")
	got["attempt count"] = web.header.Get("Saw-X-Envoy-Attempt-Count")
	got["time of the server"] = fmt.Sprint(web.header.Get("X-Envoy-Upstream-Service-Time") != "")
	got["host, and what it was"] = web.header.Get("Saw-Host") + " " + web.header.Get("Saw-X-Forwarded-Host")
	got["denied in the root namespace"] = fmt.Sprint(m.call("caller", "10.96.0.10:80", "web.a", "/denied").status)
	got["a server on loopback"] = fmt.Sprint(m.call("caller", "10.96.0.11:80", "local.a", "/").status)
	before := m.teapots.Load()
	got["what is retried"] = fmt.Sprint(m.call("caller", "10.96.0.12:80", "bare.a", "/teapot").status)
	got["attempts"] = fmt.Sprint(m.teapots.Load() - before)
	got["the client"] = m.call("client", gateway, "x", "/", "X-Forwarded-For", "192.0.2.1, 192.0.2.2, 192.0.2.3").
		header.Get("Saw-X-Envoy-External-Address")
	behind := m.call("client", gateway, "x", "/", "X-Forwarded-Client-Cert", "By=spiffe://proxy")
	got["the port, and the certificate of a proxy in front"] = behind.header.Get("Saw-X-Forwarded-Port") + " " +
		behind.header.Get("Saw-X-Forwarded-Client-Cert")
	got["a name with an underscore"] = fmt.Sprint(m.call("client", gateway, "x", "/", "x_y", "z").status)
	got["an escaped slash"] = fmt.Sprint(m.call("client", gateway, "x", "/a%2Fb").status)
	got["slashes"] = m.call("client", gateway, "x", "/a//b").header.Get("Saw-Path")
	return got
}

// TestSettings: each setting changes the results of its calls. Without it, they show Istio's defaults.
func TestSettings(t *testing.T) {
	for _, c := range []struct {
		name, config string
		want         map[string]string
	}{
		{"Defaults", "", map[string]string{
			"caller has the route of web": "200 yes", "stranger has the route of web": "200 yes",
			"caller calls bare by": "HTTP/2.0", "stranger calls bare by": "HTTP/2.0",
			"caller calls hidden": "200", "stranger calls hidden": "200",
			"server": "envoy", "request ID": "true", "attempt count": "1", "time of the server": "true",
			"host, and what it was": "other.example.com ", "denied in the root namespace": "200", "a server on loopback": "503",
			"what is retried": "418", "attempts": "1",
			"the client": "10.10.0.13", "the port, and the certificate of a proxy in front": " ",
			"a name with an underscore": "200", "an escaped slash": "200", "slashes": "/a//b",
		}},
		{"Set", settings, map[string]string{
			"caller has the route of web": "200 yes", "stranger has the route of web": "200 ",
			"caller calls bare by": "HTTP/2.0", "stranger calls bare by": "HTTP/1.1",
			"caller calls hidden": "200", "stranger calls hidden": "502",
			"server": "own", "request ID": "false", "attempt count": "", "time of the server": "false",
			"host, and what it was": "other.example.com web.a", "denied in the root namespace": "403", "a server on loopback": "200",
			"what is retried": "418", "attempts": "4",
			"the client": "192.0.2.2", "the port, and the certificate of a proxy in front": "8000 By=spiffe://proxy",
			"a name with an underscore": "400", "an escaped slash": "400", "slashes": "/a/b",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := startMeshConfig(t, c.config)
			got := m.observe()
			for what, want := range c.want {
				if got[what] != want {
					t.Errorf("%s: %q, want %q", what, got[what], want)
				}
			}
			if len(got) != len(c.want) {
				t.Errorf("%d are observed, not %d", len(got), len(c.want))
			}
			stats := func(pod, pattern string) bool {
				all, err := m.Pod(pod).Proxy.Stats(t.Context(), pattern)
				must.Succeed(t, err)
				return len(all) > 0
			}
			for pod, pattern := range map[string]string{"caller": `^cluster\.out_web\.a_80;\.upstream_rq_total$`,
				"web": `^cluster\.in_web\.a_80;\.upstream_rq_total$`} {
				if got := stats(pod, pattern); got != (c.config != "") {
					t.Errorf("%s has stats %s: %t", pod, pattern, got)
				}
			}
			if c.config == "" {
				return
			}
			suite.Eventually(t, "a call is logged in the own format", func() bool {
				text, _ := os.ReadFile(m.log)
				return strings.Contains("\n"+string(text), "\nown HTTP/1.1 200 from-caller\n")
			})
			m.greeted()
			m.idle()
			m.slow()
		})
	}
}

// greeted checks that a server may send first: the proxy does not wait for the client.
func (m *meshConfigMesh) greeted() {
	m.t.Helper()
	m.accept("bare", "0.0.0.0", 7070, func(c net.Conn) { _, _ = io.WriteString(c, "hello\n") })
	suite.Eventually(m.t, "a server that speaks first is heard", func() bool {
		c, err := m.dial("caller", "10.96.0.13:70")
		if err != nil {
			return false
		}
		defer c.Close()
		line, _ := bufio.NewReader(c).ReadString('\n')
		return line == "hello\n"
	})
}

// idle checks that the gateway closes a connection without requests.
func (m *meshConfigMesh) idle() {
	m.t.Helper()
	c, err := m.dial("client", "10.10.0.12:8000")
	must.Succeed(m.t, err)
	defer c.Close()
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		m.t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, c); err != nil { // until it is closed, or the deadline
		m.t.Errorf("an idle connection stays open: %v", err)
	}
}

// slow checks that the gateway does not wait for the headers of a request for ever.
func (m *meshConfigMesh) slow() {
	m.t.Helper()
	c, err := m.dial("client", "10.10.0.12:8000")
	must.Succeed(m.t, err)
	defer c.Close()
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n"); err != nil {
		m.t.Fatal(err)
	}
	answer, err := io.ReadAll(c) // until it is closed, or the deadline
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 408 ") {
		m.t.Errorf("a request without an end of its headers: %q, %v", answer, err)
	}
}
