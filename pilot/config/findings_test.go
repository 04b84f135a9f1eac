package config_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/pilot/config"
)

// What is new and what is gone is logged once; what stays is not.
func TestFindingsAreLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	f := &config.Findings{}
	set := func(list ...diag.Diagnostic) string {
		log.Reset()
		f.Set(list, config.ByObject, slog.New(slog.NewTextHandler(&log, nil)))
		return log.String()
	}
	a, b := diag.Diagnostic{Object: "a", Severity: diag.Error}, diag.Diagnostic{Object: "b", Severity: diag.Warning}
	if text := set(b, a, a); strings.Count(text, "\n") != 2 || !strings.Contains(text, "level=ERROR") ||
		!strings.Contains(text, "level=WARN") {
		t.Errorf("two new ones: %s", text)
	}
	if list := f.Get(); len(list) != 2 || list[0] != a || list[1] != b {
		t.Errorf("got %v", list)
	}
	if text := set(a, b); text != "" {
		t.Errorf("told %q of what is the same", text)
	}
	if text := set(b); strings.Count(text, "\n") != 1 || !strings.Contains(text, "is gone") {
		t.Errorf("one gone: %s", text)
	}
	if set(); len(f.Get()) != 0 {
		t.Errorf("left %v", f.Get())
	}
}
