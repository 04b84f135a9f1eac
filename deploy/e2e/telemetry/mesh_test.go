package telemetry

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
)

const startTimeout = 90 * time.Second

// echoService is the address of the service that is called.
const echoService = "10.96.0.10"

// meshYAML has a server, a client in its namespace and one in another, and the collector. All but the collector have a
// sidecar.
var meshYAML = suite.NamespacesYAML("istio-system", "a", "b") + suite.ServiceYAML("echo", "a", "10.96.0.10", "{name: http, port: 80, targetPort: 8080}", "{name: tcp, port: 90, targetPort: 9090}") +
	suite.ServiceYAML("collector", "b", "10.96.0.11", "{name: grpc, port: 4317}", "{name: http, port: 4318}") + suite.PodYAML("echo", "a", "10.10.0.11", `"-http=8080", "-tcp=9090"`, suite.Sidecar) +
	suite.PodYAML("client", "a", "10.10.0.12", "", suite.Sidecar) +
	suite.PodYAML("other", "b", "10.10.0.13", "", suite.Sidecar) +
	suite.PodYAML("collector", "b", "10.10.0.14", "", suite.Outside)

// meshConfig has providers of every sort. LOG is the file of access logs.
const meshConfig = `
enableTracing: true
extensionProviders:
- name: text
  envoyFileAccessLog: {path: LOG, logFormat: {text: "text %PROTOCOL% %RESPONSE_CODE% %REQ(X-ID)% %UPSTREAM_CLUSTER_RAW%"}}
- name: json
  envoyFileAccessLog: {path: LOG, logFormat: {labels: {sort: json, code: "%RESPONSE_CODE%", id: "%REQ(X-ID)%", cluster: "%UPSTREAM_CLUSTER_RAW%"}}}
- {name: als, envoyHttpAls: {service: collector.b.svc.cluster.local, port: 4317, logName: of-http, additionalRequestHeadersToLog: [x-id]}}
- {name: tcp-als, envoyTcpAls: {service: b/collector.b.svc.cluster.local, port: 4317, logName: of-tcp}}
- {name: otel-logs, envoyOtelAls: {service: collector.b.svc.cluster.local, port: 4317, logFormat: {text: "otel %REQ(X-ID)%", labels: {code: "%RESPONSE_CODE%"}}}}
- {name: otel-grpc, opentelemetry: {service: collector.b.svc.cluster.local, port: 4317}}
- {name: otel-http, opentelemetry: {service: collector.b.svc.cluster.local, port: 4318, http: {path: /v1/traces, timeout: 20s, headers: [{name: x-collector, value: test}]}}}
- {name: zipkin, zipkin: {service: collector.b.svc.cluster.local, port: 4318}}
- {name: missing-logs, envoyOtelAls: {service: missing.b.svc.cluster.local, port: 4317}}
- {name: missing-traces, zipkin: {service: missing.b.svc.cluster.local, port: 9411}}
- {name: datadog, datadog: {service: collector.b.svc.cluster.local, port: 4318}}
- {name: skywalking, skywalking: {service: collector.b.svc.cluster.local, port: 4317, accessToken: x}}
`

// mesh is the mesh of the tests, while it runs.
type mesh struct {
	*suite.Mesh
	log       string // the file of access logs
	collector *collector
}

// startMesh starts the control plane, the pods with their proxies, and the collector. The mesh configuration is that of
// meshConfig, and more.
func startMesh(t *testing.T, more string) *mesh {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	m := &mesh{log: filepath.Join(t.TempDir(), "access.txt")}
	m.Mesh = suite.StartMesh(ctx, t, suite.MeshOptions{
		Network: network, CA: true, Files: map[string]string{"mesh.yaml": meshYAML}, Config: strings.ReplaceAll(meshConfig+more, "LOG", m.log),
	})
	m.collector = startCollector(t, m.Pod("collector"))
	return m
}

// apply puts a Telemetry of a namespace in force, and waits until what a pod's proxy has contains a text.
func (m *mesh) apply(t *testing.T, namespace, spec, pod, marker string) {
	t.Helper()
	suite.Write(t, filepath.Join(m.Dir, namespace+".yaml"), "apiVersion: telemetry.istio.io/v1\nkind: Telemetry\nmetadata: {name: x, namespace: "+namespace+"}\nspec: {"+spec+"}\n")
	m.wait(t, pod, marker)
}

// wait waits until the listeners of a pod's proxy contain a text, and no connection is left of those that they replace.
func (m *mesh) wait(t *testing.T, pod, marker string) {
	t.Helper()
	suite.Eventually(t, pod+" has "+marker, func() bool {
		dump, err := m.Pod(pod).Proxy.Get(t.Context(), "/config_dump?resource=dynamic_listeners")
		if err != nil || !strings.Contains(string(dump), marker) || strings.Contains(string(dump), `"warming_state"`) {
			return false
		}
		draining, err := m.Pod(pod).Proxy.Stats(t.Context(), "listener_manager.total_(listeners|filter_chains)_draining")
		return err == nil && !slices.ContainsFunc(slices.Collect(maps.Values(draining)), func(n int) bool { return n > 0 })
	})
}

// get calls the server over HTTP from a pod, with an ID, and a header where one is named.
func (m *mesh) get(t *testing.T, from, id, header string) {
	t.Helper()
	conn := m.dial(t, from, 80)
	defer conn.Close()
	text := "GET /" + id + " HTTP/1.1\r\nHost: echo.a\r\nConnection: close\r\nx-id: " + id + "\r\n"
	if header != "" {
		text += header + "\r\n"
	}
	if _, err := io.WriteString(conn, text+"\r\n"); err != nil {
		t.Fatal(err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", id, answer.Status)
	}
}

// line calls the server over TCP from a pod.
func (m *mesh) line(t *testing.T, from string) {
	t.Helper()
	conn := m.dial(t, from, 90)
	defer conn.Close()
	if _, err := fmt.Fprintln(conn, "hello"); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(conn).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
}

func (m *mesh) dial(t *testing.T, from string, port int) net.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	conn, err := m.Pod(from).Location.DialContext(ctx, "tcp", net.JoinHostPort(echoService, strconv.Itoa(port)))
	if err != nil {
		t.Fatal(err)
	}
	end, _ := ctx.Deadline()
	if err := conn.SetDeadline(end); err != nil {
		t.Fatal(err)
	}
	return conn
}

// lines returns the access logs that were written to the file, one a line.
func (m *mesh) lines() []string {
	b, err := os.ReadFile(m.log)
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimSpace(string(b)), "\n")
}
