package config_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/pilot/config"
)

// What is new and what is gone is logged once and told; what stays is neither.
func TestFindings(t *testing.T) {
	var log bytes.Buffer
	told := 0
	f := &config.Findings{}
	set := func(list ...diag.Diagnostic) string {
		log.Reset()
		f.Set(list, config.ByObject, slog.New(slog.NewTextHandler(&log, nil)), func([]diag.Diagnostic) { told++ })
		return log.String()
	}
	a, b := diag.Diagnostic{Object: "a", Severity: diag.Error}, diag.Diagnostic{Object: "b", Severity: diag.Warning}
	if text := set(b, a, a); strings.Count(text, "\n") != 2 || !strings.Contains(text, "level=ERROR") || !strings.Contains(text, "level=WARN") {
		t.Errorf("two new ones: %s", text)
	}
	if list := f.Get(); len(list) != 2 || list[0] != a || list[1] != b {
		t.Errorf("got %v", list)
	}
	if text := set(a, b); text != "" || told != 1 {
		t.Errorf("told %d times, and %q of what is the same", told, text)
	}
	if text := set(b); strings.Count(text, "\n") != 1 || !strings.Contains(text, "is gone") || told != 2 {
		t.Errorf("told %d times, one gone: %s", told, text)
	}
	if set(); len(f.Get()) != 0 {
		t.Errorf("left %v", f.Get())
	}
}
