package boards

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/istiod-lite/istiod-lite/deploy/charts"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// TestBoards: every query of Istio's dashboards and of the chart's is answered, and each alert reads metrics that are
// there.
func TestBoards(t *testing.T) {
	text, err := os.ReadFile("testdata/istio.txt")
	must.Succeed(t, err)
	var istio []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			istio = append(istio, line)
		}
	}
	board, rules := rendered(t)
	alerts := make([]string, len(rules))
	for i, r := range rules {
		alerts[i] = r.Expr
	}
	scrapes := work(t)
	t.Run("istio", func(t *testing.T) { answered(t, scrapes, istio) })
	t.Run("chart", func(t *testing.T) { answered(t, scrapes, queriesOf(t, board)) })
	t.Run("alerts", func(t *testing.T) {
		if len(alerts) < 9 {
			t.Errorf("%d alerts", len(alerts))
		}
		var counts []string
		for i, a := range ask(t, scrapes, alerts) {
			if a.Error != "" {
				t.Errorf("%s: %s", alerts[i], a.Error)
			}
			// A word before a bracket is a function.
			for _, name := range regexp.MustCompile(`\b[a-z]+_[a-z_0-9]+\b`).
				FindAllString(regexp.MustCompile(`\{[^}]*\}|by \([^)]*\)|[a-z_]+\(`).ReplaceAllString(alerts[i], ""), -1) {
				// There is the first only with an API server, and the second only after a panic.
				if name != "webhook_patch_failures_total" && name != "istiod_panics_total" {
					counts = append(counts, "count("+name+")")
				}
			}
		}
		slices.Sort(counts)
		answered(t, scrapes, slices.Compact(counts))
	})
}

// answered holds that each query has an answer with a value in it.
func answered(t *testing.T, scrapes []scrape, queries []string) {
	t.Helper()
	if len(queries) < 5 {
		t.Fatalf("only %d queries", len(queries))
	}
	for i, a := range ask(t, scrapes, queries) {
		valued := slices.ContainsFunc(a.Samples, func(s sample) bool { return s.Value != "NaN" })
		if a.Error != "" || !valued {
			t.Errorf("%s: %+v", queries[i], a)
		}
	}
}

// rule is an alert of the chart.
type rule struct {
	Alert string `json:"alert"`
	Expr  string `json:"expr"`
	For   string `json:"for"`
}

// rendered returns the dashboard and the alerts, as Helm makes them of the chart.
func rendered(t *testing.T) (board []byte, alerts []rule) {
	t.Helper()
	helms, err := charts.Helms(t.TempDir(), "")
	must.Succeed(t, err)
	chart, err := charts.Chart("istiod")
	must.Succeed(t, err)
	out, err := helms[0].Run(t.Context(), "template", "istiod", chart, "--namespace", "istio-system", "--set",
		"alerts.enabled=true,dashboard.enabled=true")
	must.Succeed(t, err)
	for text := range strings.SplitSeq(out, "\n---\n") {
		var object struct {
			Kind     string            `json:"kind"`
			Data     map[string]string `json:"data"`
			Metadata struct {
				Labels map[string]string `json:"labels"`
			} `json:"metadata"`
			Spec struct {
				Groups []struct {
					Rules []rule `json:"rules"`
				} `json:"groups"`
			} `json:"spec"`
		}
		if !strings.Contains(text, "kind: PrometheusRule") && !strings.Contains(text, "grafana_dashboard") {
			continue
		}
		if err := yaml.Unmarshal([]byte(text), &object); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		if object.Metadata.Labels["grafana_dashboard"] == "1" {
			board = []byte(object.Data["istiod-control-plane.json"])
		}
		for _, g := range object.Spec.Groups {
			alerts = append(alerts, g.Rules...)
		}
	}
	return board, alerts
}

// queriesOf returns the queries of a dashboard, in the order of its panels.
func queriesOf(t *testing.T, board []byte) []string {
	t.Helper()
	type panel struct {
		Targets []struct {
			Expr string `json:"expr"`
		} `json:"targets"`
		Panels json.RawMessage `json:"panels"`
	}
	var queries []string
	var read func(list json.RawMessage)
	read = func(list json.RawMessage) {
		var panels []panel
		must.Succeed(t, json.Unmarshal(list, &panels))
		for _, p := range panels {
			for _, q := range p.Targets {
				queries = append(queries, q.Expr)
			}
			if len(p.Panels) > 0 {
				read(p.Panels)
			}
		}
	}
	var whole panel
	if err := json.Unmarshal(board, &whole); err != nil {
		t.Fatalf("%v: %.200s", err, board)
	}
	read(whole.Panels)
	return queries
}
