//go:build compat

package charts

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/istiod-lite/istiod-lite/deploy/charts"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/binaries"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// TestBackAsIstio moves values there and back. Istio's own charts render the same from the values that were made for
// this project's charts and from the values that `migrate --back` makes of these, but for the budget, whose value has
// another name there. The values of a control plane of this project are values of Istio's chart too.
func TestBackAsIstio(t *testing.T) {
	istio := istioChart(t)
	others := istioCharts(t, istio)
	folders := map[string]string{"istiod": istio, "base": filepath.Join(others, "base"), "gateway": filepath.Join(others, "gateway")}
	helms, err := charts.Helms(t.TempDir(), os.DevNull)
	must.Succeed(t, err)
	root, err := binaries.ModuleRoot()
	must.Succeed(t, err)
	files, err := filepath.Glob(filepath.Join(root, "cmd/pilot-discovery/migrate/testdata/*/*.txtar"))
	must.Succeed(t, err)
	header := regexp.MustCompile(`^# Values of (charts/|Istio's chart )([a-z]+)`)
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	render := func(chart, values string) string {
		t.Helper()
		out, err := helms[len(helms)-1].Run(t.Context(), "template", chart, folders[chart], "-n", "istio-system", "-f", values)
		if err != nil {
			t.Error(err)
		}
		return out
	}
	there, back := 0, 0
	for _, file := range files {
		a, err := txtar.ParseFile(file)
		must.Succeed(t, err)
		for _, f := range a.Files {
			if f.Name != "migrated.yaml" {
				continue
			}
			for doc := range strings.SplitSeq(string(f.Data), "\n---\n") {
				m := header.FindStringSubmatch(doc)
				switch {
				case m == nil || folders[m[2]] == "":
				case m[1] != "charts/":
					render(m[2], write("back.yaml", doc))
					back++
				default:
					there++
					values := write("there.yaml", doc+"\n") // a text block ends with a line break
					cmd := exec.CommandContext(t.Context(), program, "migrate", "--back", "--values", m[2]+"="+values, "-o", "values")
					out, err := cmd.Output()
					var exit *exec.ExitError
					if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 79) {
						t.Fatalf("%s: %v", filepath.Base(file), err)
					}
					if strings.Contains(doc, "podDisruptionBudget") && m[2] == "istiod" {
						continue
					}
					if d := cmp.Diff(withoutValues(render(m[2], values)), withoutValues(render(m[2], write("back.yaml", string(out))))); d != "" {
						t.Errorf("%s, chart %s: %s", filepath.Base(file), m[2], d)
					}
				}
			}
		}
	}
	if there < 30 || back < 3 {
		t.Errorf("only %d values there, and %d back", there, back)
	}
}

// withoutValues removes the ConfigMap in which Istio's chart keeps the values as they were given.
func withoutValues(manifests string) string {
	var kept []string
	for doc := range strings.SplitSeq(manifests, "\n---\n") {
		if !strings.Contains(doc, "original-values:") {
			kept = append(kept, doc)
		}
	}
	return strings.Join(kept, "\n---\n")
}
