package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// TestTranslateOfIstiosFilters: what a proxy with Istio's own filters would be sent is printed whole, their
// configuration too.
func TestTranslateOfIstiosFilters(t *testing.T) {
	dir := t.TempDir()
	mesh := filepath.Join(dir, "mesh")
	must.Succeed(t, os.Mkdir(mesh, 0o700))
	for name, text := range map[string]string{
		"mesh/all.yaml": `apiVersion: v1
kind: Service
metadata: {name: web, namespace: a}
spec: {clusterIP: 10.0.0.1, ports: [{name: http, port: 80}]}
---
apiVersion: telemetry.istio.io/v1
kind: Telemetry
metadata: {name: t, namespace: a}
spec: {metrics: [{providers: [{name: prometheus}], overrides: [{match: {metric: REQUEST_COUNT, mode: CLIENT},
  tagOverrides: {request_host: {value: request.host}, destination_app: {operation: REMOVE}}}]}]}
`,
		"node.json": `{"id": "sidecar~10.1.0.9~web-0.a~a.svc.cluster.local", "metadata": {"NAMESPACE": "a"},
"extensions": [{"name": "istio.stats", "category": "envoy.filters.http", "typeUrls": ["stats.PluginConfig"]}]}`,
	} {
		must.Succeed(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	var out, said strings.Builder
	if code := run(t.Context(), []string{"translate", mesh, "--node", filepath.Join(dir, "node.json")}, nil, &out, &said); code != 0 {
		t.Fatalf("%d: %s", code, said.String())
	}
	for _, part := range []string{`"@type": "type.googleapis.com/stats.PluginConfig"`, `"name": "requests_total"`,
		`"request_host": "request.host"`, `"destination_app"`} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("there is no %s in what is printed", part)
		}
	}
}
