package charts

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// migrated matches the first line of the values of a chart, as `pilot-discovery migrate -o values` writes them.
var migrated = regexp.MustCompile(`^# Values of charts/([a-z]+)`)

// TestMigrated renders the charts with the values that migrate makes of values files, of IstioOperators, of releases of
// Helm and of control planes that run.
func TestMigrated(t *testing.T) {
	files, err := filepath.Glob("../../cmd/pilot-discovery/migrate/testdata/*/*.txtar")
	must.Succeed(t, err)
	rendered := 0
	for _, file := range files {
		a, err := txtar.ParseFile(file)
		must.Succeed(t, err)
		for _, f := range a.Files {
			if f.Name != "migrated.yaml" {
				continue
			}
			for doc := range strings.SplitSeq(string(f.Data), "\n---\n") {
				m := migrated.FindStringSubmatch(strings.TrimPrefix(doc, "---\n"))
				if m == nil { // Istio's own charts
					continue
				}
				values := write(t, doc)
				for _, h := range helms(t) {
					out, err := h.Run(t.Context(), "template", m[1], chart(t, m[1]), "-n", "istio-system", "-f", values)
					if err != nil {
						t.Errorf("%s: %s: %v\n%s", filepath.Base(file), h.Name, err, doc)
						continue
					}
					if rendered++; m[1] == "istiod" {
						checkMesh(t, out)
					}
				}
			}
		}
	}
	if rendered < 30 {
		t.Errorf("only %d releases", rendered)
	}
}
