package envoyfilter

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
)

const startTimeout = 90 * time.Second

// The addresses of services and pods.
const (
	echoService = "10.96.0.10"
	slowService = "10.96.0.11"
	gatewayPod  = "10.10.0.14:8080"
)

// slowPort is the port of the slow server, which answers all paths but /hang.
const slowPort = 8000

// meshYAML has a server and a client with sidecars, a client in another namespace, a gateway, and a pod without a
// sidecar that calls and has a server of the test.
var meshYAML = suite.NamespacesYAML("istio-system", "a", "b") + suite.ServiceYAML("echo", "a", "10.96.0.10", "{name: http, port: 80, targetPort: 8080}", "{name: http-limited, port: 81, targetPort: 8080}", "{name: tcp, port: 90, targetPort: 9090}") +
	suite.ServiceYAML("slow", "a", "10.96.0.11", "{name: http, port: 80, targetPort: 8000}") +
	`apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: echo, namespace: a}
spec:
  hosts: [echo.a.svc.cluster.local]
  http:
  - {match: [{uri: {exact: /teapot}}], fault: {abort: {httpStatus: 418, percentage: {value: 100}}}, route: [{destination: {host: echo.a.svc.cluster.local}}]}
  - {route: [{destination: {host: echo.a.svc.cluster.local}}]}
---
` +
	suite.GatewayYAML("gateway", "a", 8080) +
	`apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: gateway, namespace: a}
spec:
  hosts: ["*"]
  gateways: [gateway]
  http:
  - {match: [{uri: {prefix: /slow}}], route: [{destination: {host: slow.a.svc.cluster.local}}]}
  - {route: [{destination: {host: echo.a.svc.cluster.local, port: {number: 80}}}]}
---
` + suite.PodYAML("echo", "a", "10.10.0.11", `"-http=8080", "-tcp=9090"`, suite.Sidecar) +
	suite.PodYAML("client", "a", "10.10.0.12", "", suite.Sidecar) +
	suite.PodYAML("other", "b", "10.10.0.13", "", suite.Sidecar) +
	suite.GatewayPodYAML("gateway", "a", "10.10.0.14") +
	suite.PodYAML("slow", "a", "10.10.0.15", "", suite.Outside)

// mesh is the mesh of the tests, while it runs.
type mesh struct{ *suite.Mesh }

// startMesh starts the control plane, the pods with their proxies, and the slow server.
func startMesh(t *testing.T, o suite.MeshOptions) *mesh {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	o.Network, o.CA, o.Files = network, true, map[string]string{"mesh.yaml": meshYAML}
	m := &mesh{suite.StartMesh(ctx, t, o)}
	s := &http.Server{Handler: http.HandlerFunc(serveSlow)} //nolint:gosec // no stranger reaches it
	suite.Serve(t, m.Pod("slow"), slowPort, s.Serve, func() { _ = s.Close() })
	return m
}

// serveSlow says whom a request is from, and never answers one for /hang.
func serveSlow(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/hang" {
		<-r.Context().Done()
		return
	}
	w.Header().Set("X-Server", "slow")
	w.Header().Set("X-From", r.Header.Get("X-Forwarded-For"))
}

// answer is what a call came to.
type answer struct {
	status  int
	headers http.Header
}

// get calls an address over HTTP from a pod. before is sent on the connection before the request. A call without an
// answer has no status.
func (m *mesh) get(t *testing.T, from, address, host, path, before string) answer {
	t.Helper()
	conn := m.dial(t, from, address)
	if conn == nil {
		return answer{}
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "%sGET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", before, path, host); err != nil {
		return answer{}
	}
	a, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return answer{}
	}
	defer a.Body.Close()
	return answer{a.StatusCode, a.Header}
}

// line says hello over TCP from the client, and returns what comes back.
func (m *mesh) line(t *testing.T) string {
	t.Helper()
	conn := m.dial(t, "client", net.JoinHostPort(echoService, strconv.Itoa(90)))
	if conn == nil {
		return ""
	}
	defer conn.Close()
	if _, err := fmt.Fprintln(conn, "hello"); err != nil {
		return ""
	}
	text, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return ""
	}
	return strings.TrimSpace(text)
}

// dial connects from a pod. It returns nil where nobody takes the connection.
func (m *mesh) dial(t *testing.T, from, address string) net.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn, err := m.Pod(from).Location.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil
	}
	end, _ := ctx.Deadline()
	if err := conn.SetDeadline(end); err != nil {
		t.Fatal(err)
	}
	return conn
}

// patch puts EnvoyFilters in force in place of those before.
func (m *mesh) patch(t *testing.T, text string) {
	t.Helper()
	suite.Write(t, filepath.Join(m.Dir, "patches.yaml"), text)
}

// updates returns how often a pod's proxy was sent something.
func (m *mesh) updates(t *testing.T, pod string) int {
	t.Helper()
	stats, err := m.Pod(pod).Proxy.Stats(t.Context(), "update_attempt|update_success")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, v := range stats {
		n += v
	}
	return n
}

// findings returns what the control plane finds wrong.
func (m *mesh) findings(t *testing.T) []diag.Diagnostic {
	t.Helper()
	resp, err := m.Pilot.Get(t.Context(), "/debug/findings")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var list []struct {
		diag.Diagnostic
		Severity string `json:"severity"`
	}
	if err := json.Unmarshal(b, &list); err != nil {
		t.Fatal(err)
	}
	var found []diag.Diagnostic
	for _, d := range list {
		found = append(found, d.Diagnostic)
	}
	return found
}

// echoAt returns the address of a port of the server's service.
func echoAt(port int) string { return net.JoinHostPort(echoService, strconv.Itoa(port)) }
