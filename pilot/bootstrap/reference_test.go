package bootstrap

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

var update = flag.Bool("update", false, "write the reference in docs/ anew")

// The reference of metrics is what the registry of a server in a cluster has: `make gen` writes it.
func TestMetricsReference(t *testing.T) {
	o := testOptions(t)
	o.Client, o.PodName = &rest.Config{Host: "https://127.0.0.1:1"}, "istiod-0"
	s, err := New(o)
	must.Succeed(t, err)
	types := map[string]string{}
	families, err := s.metrics.Gather()
	must.Succeed(t, err)
	for _, f := range families {
		types[f.GetName()] = strings.ToLower(f.GetType().String())
	}
	shared, err := metrics.Registry.Gather() // of the process: other tests have given some of them values, and so a type
	must.Succeed(t, err)
	for _, f := range shared {
		delete(types, f.GetName())
	}
	descriptions := make(chan *prometheus.Desc)
	go func() {
		s.metrics.Describe(descriptions)
		close(descriptions)
	}()
	shape := regexp.MustCompile(`^Desc\{fqName: "(\w+)", help: "(.*)", unit: ".*", constLabels: \{.*\}, variableLabels: \{(.*)\}\}$`)
	rows := map[string]string{}
	for d := range descriptions {
		m := shape.FindStringSubmatch(d.String())
		if m == nil {
			t.Fatalf("%s is not understood", d)
		}
		if strings.HasPrefix(m[1], "go_") || strings.HasPrefix(m[1], "process_") {
			continue
		}
		about := types[m[1]]
		if m[3] != "" {
			about = strings.TrimPrefix(about+", by "+strings.ReplaceAll(m[3], ",", ", "), ", ")
		}
		if about != "" {
			about = " (" + about + ")"
		}
		rows[m[1]] = fmt.Sprintf("- `%s`%s: %s\n", m[1], about, m[2])
	}
	if len(rows) < 50 {
		t.Fatalf("only %d metrics", len(rows))
	}
	names := []string{}
	for name := range rows {
		names = append(names, name)
	}
	slices.Sort(names)
	var b strings.Builder
	b.WriteString("# Metrics\n\n<!-- Written by `make gen` from the code: change that, and not this. -->\n\n" +
		"What `/metrics` on `--monitoringAddr` has, beside the metrics of Go and of the process. The names are istiod's where\n" +
		"istiod has the same. An alert for each that matters is in the chart (`alerts.enabled`).\n\n")
	for _, name := range names {
		column := 0
		for i, word := range strings.Fields(rows[name]) {
			switch {
			case i > 0 && column+1+len(word) > 118:
				b.WriteString("\n  ")
				column = 2
			case i > 0:
				b.WriteByte(' ')
				column++
			}
			b.WriteString(word)
			column += len(word)
		}
		b.WriteByte('\n')
	}
	path := filepath.Join("..", "..", "docs", "reference", "metrics.md")
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil { //nolint:gosec // a document
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != b.String() {
		t.Errorf("docs/reference/metrics.md is not what the code says (%v): "+
			"make gen, or go test ./pilot/bootstrap -run TestMetricsReference -update", err)
	}
}
