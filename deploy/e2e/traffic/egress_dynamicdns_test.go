package traffic

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// egressYAML has a caller with a sidecar, and a service on a port that calls out of the mesh use too. There is no
// mutual TLS, so no proxy needs certificates.
var egressYAML = suite.NamespacesYAML("istio-system", "a") + suite.PeerAuthenticationYAML("DISABLE") +
	suite.ServiceYAML("other", "a", "10.96.0.10", "{name: http, port: 8081}") + suite.PodYAML("caller", "a", "10.10.0.13", "", suite.Sidecar)

const dynamicYAML = `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: dynamic, namespace: a}
spec:
  hosts: ["*.localhost"]
  ports: [{number: 8080, name: http, protocol: HTTP}, {number: 8443, name: tls, protocol: TLS}]
  resolution: DYNAMIC_DNS
`

// nowhere is an unassigned address. A request to it arrives only if the proxy resolves the host.
const nowhere = "10.96.0.99"

type egressMesh struct{ mesh }

// startEgress runs the mesh and its servers. On the loopback interface of the caller, servers of HTTP are on 8080 and
// 8081, and servers of HTTPS on 8443 and 8444.
func startEgress(t *testing.T, o suite.MeshOptions) egressMesh {
	t.Helper()
	m := egressMesh{start(t, egressYAML, o)}
	for _, port := range []int{8080, 8081, 8443, 8444} {
		s := httptest.NewUnstartedServer(
			http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = fmt.Fprintf(w, "%s on %d", r.Host, port) }))
		_ = s.Listener.Close()
		l, err := m.Pod("caller").Location.Listen(net.JoinHostPort("127.0.0.1", fmt.Sprint(port)))
		must.Succeed(t, err)
		if s.Listener = l; port > 8400 {
			s.StartTLS()
		} else {
			s.Start()
		}
		t.Cleanup(s.Close)
	}
	return m
}

// get sends a request of the caller to an unassigned address, and returns the status and the answer.
func (m egressMesh) get(url string) string {
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // a test's certificate
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			_, port, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			return m.Pod("caller").Location.DialContext(ctx, network, net.JoinHostPort(nowhere, port))
		},
	}}
	defer client.CloseIdleConnections()
	return textOf(client.Get(url))
}

// textOf returns the body of a response with status 200, the status of another response, or "no answer".
func textOf(resp *http.Response, err error) string {
	if err != nil {
		return "no answer"
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return resp.Status
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1000))
	if err != nil {
		return "no answer"
	}
	return string(text)
}

// answers waits until the answer of a request is as wanted.
func (m egressMesh) answers(url, want string) {
	m.t.Helper()
	eventuallyText(m.t, url, want, func() string { return m.get(url) })
}

// eventuallyText waits until a function returns a text. If the test fails, it logs the last text.
func eventuallyText(t *testing.T, what, want string, get func() string) {
	t.Helper()
	got := ""
	defer func() {
		if t.Failed() {
			t.Logf("the last answer: %q", got)
		}
	}()
	suite.Eventually(t, what+" is answered with "+want, func() bool { got = get(); return got == want })
}

// TestServiceEntry: for hosts of a ServiceEntry, requests go to their host and TLS connections to their server name,
// whatever their destination address. Others do not leave the mesh.
func TestServiceEntry(t *testing.T) {
	m := startEgress(t, suite.MeshOptions{Config: "outboundTrafficPolicy: {mode: REGISTRY_ONLY}\n"})
	m.answers("http://one.localhost:8081/", "502 Bad Gateway")
	m.write("dynamic.yaml", dynamicYAML)
	m.answers("http://one.localhost:8080/", "one.localhost:8080 on 8080")
	m.answers("http://two.localhost:8080/", "two.localhost:8080 on 8080")
	m.answers("https://one.localhost:8443/", "one.localhost:8443 on 8443")
	m.answers("http://one.example:8080/", "502 Bad Gateway")
	m.answers("https://one.example:8443/", "no answer")
	m.write("rule.yaml", `apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: dynamic, namespace: a}
spec:
  host: "*.localhost"
  trafficPolicy: {loadBalancer: {simple: ROUND_ROBIN}, connectionPool: {http: {maxRequestsPerConnection: 1}},
      outlierDetection: {consecutive5xxErrors: 7}}
`)
	m.answers("http://three.localhost:8080/", "three.localhost:8080 on 8080")
}

// TestAllowAny: if the mesh resolves the hosts of requests, hosts without a service are called by name, on ports of
// services and on other ports.
func TestAllowAny(t *testing.T) {
	m := startEgress(t, suite.MeshOptions{Config: "outboundTrafficPolicy: {mode: ALLOW_ANY_DYNAMIC_DNS}\n"})
	m.answers("http://one.localhost:8080/", "one.localhost:8080 on 8080")
	m.answers("http://one.localhost:8081/", "one.localhost:8081 on 8081")
}

// TestAllowAnyOverTLS: the mesh configuration sets the TLS of those calls.
func TestAllowAnyOverTLS(t *testing.T) {
	m := startEgress(t,
		suite.MeshOptions{Config: "outboundTrafficPolicy: {mode: ALLOW_ANY_DYNAMIC_DNS, tls: {mode: SIMPLE, insecureSkipVerify: true}}\n"})
	m.answers("http://one.localhost:8444/", "one.localhost:8444 on 8444")
}

const egressProxyYAML = `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: proxy, namespace: a}
spec:
  hosts: [proxy.example]
  resolution: STATIC
  ports: [{number: 3128, name: http, protocol: HTTP, targetPort: 8080}]
  endpoints: [{address: 127.0.0.1}]
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: default, namespace: a}
spec:
  egress: [{hosts: ["*/*"]}]
  outboundTrafficPolicy: {mode: ALLOW_ANY, egressProxy: {host: proxy.example, port: {number: 3128}}}
`

// TestEgressProxy: requests to hosts without a service go to the egress proxy of a Sidecar, on ports of services and on
// other ports. Calls of services do not.
func TestEgressProxy(t *testing.T) {
	m := startEgress(t, suite.MeshOptions{Config: "outboundTrafficPolicy: {mode: REGISTRY_ONLY}\n"})
	m.answers("http://one.example:8081/", "502 Bad Gateway")
	m.answers("http://one.example:9999/", "no answer")
	m.write("proxy.yaml", egressProxyYAML)
	m.answers("http://one.example:8081/", "one.example:8081 on 8080")
	m.answers("http://one.example:9999/", "one.example:9999 on 8080")
	m.answers("http://other.a.svc.cluster.local:8081/", "503 Service Unavailable")
}
