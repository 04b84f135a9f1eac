package traffic

import (
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
)

// telemetryEchoService is the address of the service that is called.
const telemetryEchoService = "10.96.0.10"

// telemetryYAML has a server, a client in its namespace and one in another, and the collector. All except the collector
// have a sidecar.
var telemetryYAML = suite.NamespacesYAML("istio-system", "a", "b") + suite.ServiceYAML("echo", "a", "10.96.0.10",
	"{name: http, port: 80, targetPort: 8080}", "{name: tcp, port: 90, targetPort: 9090}") +
	suite.ServiceYAML("collector", "b", "10.96.0.11", "{name: grpc, port: 4317}", "{name: http, port: 4318}") +
	suite.PodYAML("echo", "a", "10.10.0.11", `"-http=8080", "-tcp=9090"`, suite.Sidecar) +
	suite.PodYAML("client", "a", "10.10.0.12", "", suite.Sidecar) +
	suite.PodYAML("other", "b", "10.10.0.13", "", suite.Sidecar) +
	suite.PodYAML("collector", "b", "10.10.0.14", "", suite.Outside)

// telemetryMeshConfig has providers of all kinds. LOG is the file of access logs.
const telemetryMeshConfig = `
enableTracing: true
extensionProviders:
- name: text
  envoyFileAccessLog: {path: LOG, logFormat: {text: "text %PROTOCOL% %RESPONSE_CODE% %REQ(X-ID)% %UPSTREAM_CLUSTER_RAW%"}}
- name: json
  envoyFileAccessLog: {path: LOG, logFormat: {labels: {sort: json, code: "%RESPONSE_CODE%", id: "%REQ(X-ID)%",
      cluster: "%UPSTREAM_CLUSTER_RAW%"}}}
- {name: als, envoyHttpAls: {service: collector.b.svc.cluster.local, port: 4317, logName: of-http, additionalRequestHeadersToLog: [x-id],
      additionalResponseHeadersToLog: [content-type]}}
- {name: tcp-als, envoyTcpAls: {service: b/collector.b.svc.cluster.local, port: 4317, logName: of-tcp}}
- {name: otel-logs, envoyOtelAls: {service: collector.b.svc.cluster.local, port: 4317,
      logFormat: {text: "otel %REQ(X-ID)%", labels: {code: "%RESPONSE_CODE%"}}}}
- {name: otel-grpc, opentelemetry: {service: collector.b.svc.cluster.local, port: 4317,
      grpc: {initialMetadata: [{name: x-collector, value: test}]}}}
- {name: otel-http, opentelemetry: {service: collector.b.svc.cluster.local, port: 4318,
      http: {path: /v1/traces, timeout: 20s, headers: [{name: x-collector, value: test}]}}}
- {name: zipkin, zipkin: {service: collector.b.svc.cluster.local, port: 4318}}
- {name: missing-logs, envoyOtelAls: {service: missing.b.svc.cluster.local, port: 4317}}
- {name: missing-traces, zipkin: {service: missing.b.svc.cluster.local, port: 9411}}
- {name: datadog, datadog: {service: collector.b.svc.cluster.local, port: 4318}}
- {name: skywalking, skywalking: {service: collector.b.svc.cluster.local, port: 4317, accessToken: x}}
`

// telemetryMesh is the mesh of the tests, while it runs.
type telemetryMesh struct {
	mesh
	log       string // the file of access logs
	collector *collector
}

// startTelemetry runs the mesh and the collector. The mesh configuration is telemetryMeshConfig and more.
func startTelemetry(t *testing.T, more string) *telemetryMesh {
	t.Helper()
	log := filepath.Join(t.TempDir(), "access.txt")
	m := start(t, telemetryYAML, suite.MeshOptions{CA: true, Config: strings.ReplaceAll(telemetryMeshConfig+more, "LOG", log)})
	return &telemetryMesh{m, log, startCollector(t, m.Pod("collector"))}
}

// get calls the server over HTTP from a pod with an ID, and returns the response.
func (m *telemetryMesh) get(from, id, query string, headers ...string) response {
	m.t.Helper()
	r := request{from: from, address: telemetryEchoService + ":80", path: "/" + id + query, host: "echo.a",
		headers: map[string]string{"x-id": id}}
	for i := 0; i < len(headers); i += 2 {
		r.headers[headers[i]] = headers[i+1]
	}
	a, err := m.do(r)
	if err != nil || a.status != http.StatusOK {
		m.t.Fatalf("%s: %d, %v", id, a.status, err)
	}
	return a
}

// connect calls the server over TCP from the client.
func (m *telemetryMesh) connect() {
	m.t.Helper()
	if _, err := m.line("client", telemetryEchoService+":90"); err != nil {
		m.t.Fatal(err)
	}
}

// apply puts a Telemetry of a namespace in force, and waits until the configuration of a pod's proxy contains a text.
func (m *telemetryMesh) apply(namespace, spec, pod, marker string) {
	m.t.Helper()
	m.write(namespace+".yaml",
		"apiVersion: telemetry.istio.io/v1\nkind: Telemetry\nmetadata: {name: x, namespace: "+namespace+"}\nspec: {"+spec+"}\n")
	m.wait(pod, marker)
}

// wait waits until the listeners of a pod's proxy contain a text, and the replaced listeners have no connections.
func (m *telemetryMesh) wait(pod, marker string) {
	m.t.Helper()
	suite.Eventually(m.t, pod+" has "+marker, func() bool {
		dump, err := m.Pod(pod).Proxy.Get(m.t.Context(), "/config_dump?resource=dynamic_listeners")
		if err != nil || !strings.Contains(string(dump), marker) || strings.Contains(string(dump), `"warming_state"`) {
			return false
		}
		draining, err := m.Pod(pod).Proxy.Stats(m.t.Context(), "listener_manager.total_(listeners|filter_chains)_draining")
		return err == nil && !slices.ContainsFunc(slices.Collect(maps.Values(draining)), func(n int) bool { return n > 0 })
	})
}

// lines returns the access logs that were written to the file, one a line.
func (m *telemetryMesh) lines() []string {
	b, err := os.ReadFile(m.log)
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimSpace(string(b)), "\n")
}
