package bootstrap

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/components"
)

// A part of the server is one file, such as this one, and one line, the next one.
func init() { parts = append(parts, newCounting) } //nolint:gochecknoinits // The line registers the part.

// counting counts changes of Services.
type counting struct {
	server  *Server
	changes prometheus.Counter
	running atomic.Bool
}

func newCounting(s *Server) (components.Component, error) {
	if s.o.Version != "with a part" {
		return nil, nil
	}
	c := &counting{server: s, changes: prometheus.NewCounter(prometheus.CounterOpts{Name: "part_changes_total", Help: "Changes of Services."})}
	s.metrics.MustRegister(c.changes)
	return c, nil
}

func (*counting) Name() string { return "counting" }

func (c *counting) Run(ctx context.Context) error {
	c.running.Store(true)
	defer c.running.Store(false)
	<-ctx.Done()
	return nil
}

func (c *counting) Findings() []diag.Diagnostic {
	return []diag.Diagnostic{{Severity: diag.Warning, Code: "Counting", Message: "Services are counted"}}
}

func (c *counting) Committed(batch []kinds.Change) {
	for _, change := range batch {
		if change.Kind == kinds.Service {
			c.changes.Inc()
		}
	}
}

// TestPartOfServer shows that a component runs, hears of commits, and shows its findings and its metrics.
func TestPartOfServer(t *testing.T) {
	o := testOptions(t)
	o.Version, o.AdminPages = "with a part", true
	s, stop := running(t, o)
	var c *counting
	for _, part := range s.components.Parts() {
		if is, ok := part.(*counting); ok {
			c = is
		}
	}
	if c == nil {
		t.Fatal("the server has no such component")
	}
	eventually(t, "the component runs", c.running.Load)
	eventually(t, "the commit is observed", func() bool {
		_, metrics := fetch(t, s.Addresses().Monitoring, "/metrics")
		return strings.Contains(metrics, "\npart_changes_total 1\n")
	})
	code, page := fetch(t, s.Addresses().HTTP, "/debug/findings")
	if code != http.StatusOK || !strings.Contains(page, "Services are counted") {
		t.Errorf("findings: status %d:\n%s", code, page)
	}
	if err := stop(); err != nil || c.running.Load() {
		t.Errorf("stop: %v, running %v", err, c.running.Load())
	}
}
