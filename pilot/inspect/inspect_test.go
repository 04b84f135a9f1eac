package inspect_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/deploy/leaks"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/catalog"
	"github.com/istiod-lite/istiod-lite/pilot/ingest"
	"github.com/istiod-lite/istiod-lite/pilot/inspect"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// A finding about a mesh configuration names the line and column of the file that holds its ConfigMap.
func TestMeshPositions(t *testing.T) {
	const head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: istio, namespace: istio-system}\ndata:\n"
	for _, c := range []struct{ name, text, want string }{
		{"block", head + "  mesh: |\n    # comment\n    trustDomian: x\n", ":7:5: error: MeshConfig: trustDomian: "},
		{"second document", "# first\n---\n" + head + "  mesh: |-\n      defaultConfig:\n        discoveryAdress: x\n",
			":9:9: error: MeshConfig: defaultConfig.discoveryAdress: "},
		{"quoted", head + `  mesh: "a: 1\ntrustDomian: x"` + "\n", ":5:9: error: MeshConfig: trustDomian: line 2, column 1 of data.mesh: "},
		{"networks", head + "  meshNetworks: |\n    network: {}\n", ":6:5: error: MeshNetworks: network: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := ingest.Options{
				Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), ConfigDir: t.TempDir(), Namespace: "istio-system",
				Domain: "cluster.local", ClusterID: "Kubernetes", Limits: limits.Default(),
			}
			file := filepath.Join(o.ConfigDir, "mesh.yaml")
			must.Succeed(t, os.WriteFile(file, []byte(c.text), 0o644))
			i, err := inspect.Read(t.Context(), o, catalog.Features())
			must.Succeed(t, err)
			if !slices.ContainsFunc(i.Findings, func(d diag.Diagnostic) bool { return strings.HasPrefix(d.String(), file+c.want) }) {
				t.Errorf("findings %v, want %s", i.Findings, c.want)
			}
		})
	}
}

// What a stage finds wrong, and a field that has no effect, is logged with the place of the field, as findings have it.
func TestLoggedPositions(t *testing.T) {
	const text = `apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web, namespace: shop}
spec:
  gatewayClassName: istio
  listeners:
  - {name: one, port: 80, protocol: HTTP}
  - name: two
    port: 443
    protocol: HTTPS
    tls: {certificateRefs: [{name: nowhere}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web, namespace: shop}
spec:
  parentRefs: [{name: web}]
  rules:
  - backendRefs:
    - {name: nobody, port: 80}
`
	var log bytes.Buffer
	o := ingest.Options{
		Logger: slog.New(slog.NewTextHandler(&log, nil)), ConfigDir: t.TempDir(), Namespace: "istio-system",
		Domain: "cluster.local", ClusterID: "Kubernetes", Limits: limits.Default(),
	}
	file := filepath.Join(o.ConfigDir, "mesh.yaml")
	must.Succeed(t, os.WriteFile(file, []byte(text), 0o644))
	i, err := inspect.Read(t.Context(), o, catalog.Features())
	must.Succeed(t, err)
	for _, line := range []string{":11:", ":20:"} {
		at := slices.IndexFunc(i.Findings, func(d diag.Diagnostic) bool { return strings.HasPrefix(d.String(), file+line) })
		if at < 0 {
			t.Errorf("no finding at %s: %v", line, i.Findings)
		} else if logged := log.String(); !strings.Contains(logged, file+line) {
			t.Errorf("the log has no finding at %s:\n%s", line, logged)
		}
	}
}
