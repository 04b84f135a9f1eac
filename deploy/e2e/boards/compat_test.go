//go:build compat

package boards

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/compat"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/binaries"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// TestBoardsAsIstio asks every query of Istio's own dashboards of the control plane and of performance.
func TestBoardsAsIstio(t *testing.T) {
	dir, err := binaries.Tool("istio-dashboards", "ISTIO_DASHBOARDS")
	must.Succeed(t, err)
	scrapes := work(t)
	table := compat.Table{
		Title: "Grafana: Istio's dashboards",
		About: "Each query of the dashboards' JSON, asked of Prometheus's own engine (`deploy/promql`) over scrapes of a control plane\n" +
			"that works. What cAdvisor and proxies answer to is in `deploy/e2e/boards/testdata/others.txt`.",
		Head: []string{"dashboard", "queries", "answered", "without an answer"},
	}
	for _, name := range []string{"pilot-dashboard.gen.json", "istio-performance-dashboard.json"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		must.Succeed(t, err)
		queries := slices.DeleteFunc(queriesOf(t, text), func(q string) bool { return q == "" })
		answered, without := 0, "none"
		for i, a := range ask(t, scrapes, queries) {
			if a.Error == "" && slices.ContainsFunc(a.Samples, func(s sample) bool { return s.Value != "NaN" }) {
				answered++
				continue
			}
			t.Errorf("%s: %s: %+v", name, queries[i], a)
			without = "`" + queries[i] + "`"
		}
		table.Rows = append(table.Rows, []string{name, fmt.Sprint(len(queries)), fmt.Sprint(answered), without})
	}
	if err := compat.Check(table); err != nil {
		t.Error(err)
	}
}
