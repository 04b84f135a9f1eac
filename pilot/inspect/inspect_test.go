package inspect_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/pilot/catalog"
	"github.com/istiod-lite/istiod-lite/pilot/ingest"
	"github.com/istiod-lite/istiod-lite/pilot/inspect"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A finding about a mesh configuration names the line and column of the file that holds its ConfigMap.
func TestMeshPositions(t *testing.T) {
	const head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: istio, namespace: istio-system}\ndata:\n"
	for _, c := range []struct{ name, text, want string }{
		{"block", head + "  mesh: |\n    # comment\n    trustDomian: x\n", ":7:5: error: MeshConfig: trustDomian: "},
		{"second document", "# first\n---\n" + head + "  mesh: |-\n      defaultConfig:\n        discoveryAdress: x\n", ":9:9: error: MeshConfig: defaultConfig.discoveryAdress: "},
		{"quoted", head + `  mesh: "a: 1\ntrustDomian: x"` + "\n", ":5:9: error: MeshConfig: trustDomian: line 2, column 1 of data.mesh: "},
		{"networks", head + "  meshNetworks: |\n    network: {}\n", ":6:5: error: MeshNetworks: network: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := ingest.Options{
				Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), ConfigDir: t.TempDir(), Namespace: "istio-system",
				Domain: "cluster.local", ClusterID: "Kubernetes", Limits: limits.Default(),
			}
			file := filepath.Join(o.ConfigDir, "mesh.yaml")
			if err := os.WriteFile(file, []byte(c.text), 0o644); err != nil {
				t.Fatal(err)
			}
			i, err := inspect.Read(t.Context(), o, catalog.Features())
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(i.Findings, func(d diag.Diagnostic) bool { return strings.HasPrefix(d.String(), file+c.want) }) {
				t.Errorf("findings %v, want %s", i.Findings, c.want)
			}
		})
	}
}
