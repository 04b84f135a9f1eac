package bench

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/binaries"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// TestEveryWorkload runs every workload on istiod-lite and on the limit, which copies it, and finds every figure in the
// results. Then it runs one of them again, which replaces only its own sections.
func TestEveryWorkload(t *testing.T) {
	dir := t.TempDir()
	command, out := filepath.Join(dir, "measure"), filepath.Join(dir, "RESULTS.md")
	must.Succeed(t, binaries.Build(t.Context(), command, "./deploy/bench"))
	if os.Getenv("PILOT_DISCOVERY") == "" { // built once, not for each call
		pilot := filepath.Join(dir, "pilot-discovery")
		must.Succeed(t, binaries.Build(t.Context(), pilot, "./cmd/pilot-discovery"))
		t.Setenv("PILOT_DISCOVERY", pilot)
	}
	measure := func(args ...string) map[string]string {
		t.Helper()
		args = append([]string{"-services", "20", "-proxies", "11", "-rounds", "1", "-length", "200ms", "-rest", "100ms", "-out", out}, args...)
		if log, err := exec.CommandContext(t.Context(), command, args...).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, log)
		}
		b, err := os.ReadFile(out)
		must.Succeed(t, err)
		sections := map[string]string{}
		for _, part := range strings.Split(string(b), "\n## ")[1:] {
			heading, body, _ := strings.Cut(part, "\n")
			sections[heading] = body
		}
		return sections
	}
	const both = "W2a W3 W4 W5 W13a W13b W14 W15a W15b W15c W15d"
	all := measure("-only", "lite,limit", "-idle", "0,2,4", "-routes", "60")
	want := []string{"Goals", "W1, 20 services", "W5b, 20 services", "W8, 20 services", "W9, 20 services", "W11, 20 services",
		"W11b, 20 services", "W13c, 20 services"}
	for _, w := range []string{"W2b", "W6", "W7", "W10"} {
		want = append(want, w+", 20 services, 11 proxies, delta")
	}
	for w := range strings.FieldsSeq(both) {
		want = append(want, w+", 20 services, 11 proxies, delta", w+", 20 services, 11 proxies, sotw")
	}
	for _, heading := range want {
		if _, ok := all[heading]; !ok {
			t.Errorf("no section %q", heading)
		}
	}
	for heading, body := range all {
		if empty := regexp.MustCompile(`(?m)^\| [^|]+ \| \|.*$`).FindAllString(body, -1); len(empty) > 0 && heading != "Goals" {
			t.Errorf("%s: nothing was measured of: %q", heading, empty)
		}
		if strings.Contains(body, "Failed:") {
			t.Errorf("%s:\n%s", heading, body)
		}
	}
	for _, nothing := range []string{"changes: received by the others, bytes", "writes that no proxy depends on: received by all, bytes"} {
		if line := "| " + nothing + " | 0 (0…0) | ≤ 0: met |"; !strings.Contains(all["W6, 20 services, 11 proxies, delta"], line) {
			t.Errorf("no line %s in\n%s", line, all["W6, 20 services, 11 proxies, delta"])
		}
	}

	// the smaller world grows
	again := measure("-only", "lite", "-w", "W3", "-modes", "delta", "-services", "15,20", "-profiles", dir)
	const replaced = "W3, 20 services, 11 proxies, delta"
	for heading, body := range all {
		if heading != replaced && heading != "Goals" && again[heading] != body {
			t.Errorf("section %q was not measured again, and is another now", heading)
		}
	}
	if again[replaced] == all[replaced] || len(again) != len(all)+1 {
		t.Errorf("%d sections, before %d, and %s\n%s", len(again), len(all), replaced, again[replaced])
	}
	if profiles, err := filepath.Glob(filepath.Join(dir, "W3-*.pb.gz")); err != nil || len(profiles) != 4 {
		t.Errorf("profiles %q, want two of each section: %v", profiles, err)
	}
}
