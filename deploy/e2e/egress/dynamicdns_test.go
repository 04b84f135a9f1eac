package egress

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
)

const startTimeout = 90 * time.Second

// meshYAML has a caller with a sidecar, and a service on a port that calls out of the mesh use too. There is no mutual
// TLS, so no proxy needs certificates.
var meshYAML = suite.NamespacesYAML("istio-system", "a") + suite.PeerAuthenticationYAML("DISABLE") +
	suite.ServiceYAML("other", "a", "10.96.0.10", "{name: http, port: 8081}") + suite.PodYAML("caller", "a", "10.10.0.13", "", suite.Sidecar)

const dynamicYAML = `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: dynamic, namespace: a}
spec:
  hosts: ["*.localhost"]
  ports: [{number: 8080, name: http, protocol: HTTP}, {number: 8443, name: tls, protocol: TLS}]
  resolution: DYNAMIC_DNS
`

// nowhere is an address that nobody has: only what resolves the called host gets to a server.
const nowhere = "10.96.0.99"

type mesh struct {
	*suite.Mesh
	t *testing.T
}

// start runs the mesh with its servers: on the loopback interface of the caller are servers of HTTP on 8080 and 8081,
// and of HTTPS on 8443 and 8444.
func start(t *testing.T, config string) mesh {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	return serve(t, suite.StartMesh(ctx, t, suite.MeshOptions{Network: network, Files: map[string]string{"mesh.yaml": meshYAML},
		Config: config}))
}

// serve runs the servers of a mesh.
func serve(t *testing.T, of *suite.Mesh) mesh {
	t.Helper()
	m := mesh{of, t}
	for _, port := range []string{"8080", "8081", "8443", "8444"} {
		l, err := m.Pod("caller").Location.Listen(net.JoinHostPort("127.0.0.1", port))
		if err != nil {
			t.Fatal(err)
		}
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = fmt.Fprintf(w, "%s on %s", r.Host, port)
		}))
		_ = s.Listener.Close()
		if s.Listener = l; strings.HasPrefix(port, "84") {
			s.StartTLS()
		} else {
			s.Start()
		}
		t.Cleanup(s.Close)
	}
	return m
}

// get returns the status and the answer of a request, which the caller sends to an address that nobody has.
func (m mesh) get(url string) string {
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
	resp, err := client.Get(url)
	if err != nil {
		return "no answer"
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1000))
	if err != nil {
		return "no answer"
	}
	if resp.StatusCode != http.StatusOK {
		return resp.Status
	}
	return string(text)
}

// answers waits until the answer of a request is as wanted.
func (m mesh) answers(url, want string) {
	m.t.Helper()
	var got string
	defer func() {
		if m.t.Failed() {
			m.t.Logf("the last answer: %q", got)
		}
	}()
	suite.Eventually(m.t, url+" is answered with "+want, func() bool { got = m.get(url); return got == want })
}

// TestServiceEntry: requests go to the host that they name and TLS connections to their server name, whatever address
// they were for, where a ServiceEntry covers them. Others do not leave the mesh.
func TestServiceEntry(t *testing.T) {
	m := start(t, "outboundTrafficPolicy: {mode: REGISTRY_ONLY}\n")
	m.answers("http://one.localhost:8081/", "502 Bad Gateway")
	suite.Write(t, filepath.Join(m.Dir, "dynamic.yaml"), dynamicYAML)
	m.answers("http://one.localhost:8080/", "one.localhost:8080 on 8080")
	m.answers("http://two.localhost:8080/", "two.localhost:8080 on 8080")
	m.answers("https://one.localhost:8443/", "one.localhost:8443 on 8443")
	m.answers("http://one.example:8080/", "502 Bad Gateway")
	m.answers("https://one.example:8443/", "no answer")
	suite.Write(t, filepath.Join(m.Dir, "rule.yaml"), `apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: dynamic, namespace: a}
spec:
  host: "*.localhost"
  trafficPolicy: {loadBalancer: {simple: ROUND_ROBIN}, connectionPool: {http: {maxRequestsPerConnection: 1}}, outlierDetection: {consecutive5xxErrors: 7}}
`)
	m.answers("http://three.localhost:8080/", "three.localhost:8080 on 8080")
}

// TestAllowAny: where the mesh has the hosts of requests resolved, those that no service has are called by name, on
// ports of services and on others.
func TestAllowAny(t *testing.T) {
	m := start(t, "outboundTrafficPolicy: {mode: ALLOW_ANY_DYNAMIC_DNS}\n")
	m.answers("http://one.localhost:8080/", "one.localhost:8080 on 8080")
	m.answers("http://one.localhost:8081/", "one.localhost:8081 on 8081")
}

// TestAllowAnyOverTLS: the mesh says how those hosts are called.
func TestAllowAnyOverTLS(t *testing.T) {
	m := start(t, "outboundTrafficPolicy: {mode: ALLOW_ANY_DYNAMIC_DNS, tls: {mode: SIMPLE, insecureSkipVerify: true}}\n")
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

// TestEgressProxy: what no service is for goes to the egress proxy of a Sidecar, on ports of services and on others.
// Calls of services do not.
func TestEgressProxy(t *testing.T) {
	m := start(t, "outboundTrafficPolicy: {mode: REGISTRY_ONLY}\n")
	m.answers("http://one.example:8081/", "502 Bad Gateway")
	m.answers("http://one.example:9999/", "no answer")
	suite.Write(t, filepath.Join(m.Dir, "proxy.yaml"), egressProxyYAML)
	m.answers("http://one.example:8081/", "one.example:8081 on 8080")
	m.answers("http://one.example:9999/", "one.example:9999 on 8080")
	m.answers("http://other.a.svc.cluster.local:8081/", "503 Service Unavailable")
}
