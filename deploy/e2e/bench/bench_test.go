package bench

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/binaries"
)

// TestEveryWorkload runs every workload on istiod-lite alone, in both protocols, and finds every figure in the results.
func TestEveryWorkload(t *testing.T) {
	dir := t.TempDir()
	command, out := filepath.Join(dir, "measure"), filepath.Join(dir, "RESULTS.md")
	if err := binaries.Build(t.Context(), command, "./deploy/bench"); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), command, "-only", "lite", "-services", "20", "-proxies", "5", "-rounds", "1", "-length", "300ms", "-rest", "200ms", "-profiles", dir, "-out", out)
	if log, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	results := string(b)
	for _, heading := range []string{
		"W1, 20 services", "W2a, 20 services, 5 proxies, delta", "W2a, 20 services, 5 proxies, sotw", "W3, 20 services, 5 proxies, delta", "W3, 20 services, 5 proxies, sotw",
		"W4, 20 services, 5 proxies, delta", "W4, 20 services, 5 proxies, sotw", "W5, 20 services, 5 proxies, delta", "W5, 20 services, 5 proxies, sotw",
	} {
		if !strings.Contains(results, "\n## "+heading+"\n") {
			t.Errorf("no section %q", heading)
		}
	}
	if empty := regexp.MustCompile(`(?m)^\| [^|]+ \| \|.*$`).FindAllString(results, -1); len(empty) > 0 {
		t.Errorf("nothing was measured of: %q", empty)
	}
	if profiles, err := filepath.Glob(filepath.Join(dir, "*.pb.gz")); err != nil || len(profiles) != 2*9 {
		t.Errorf("%d profiles, want two of each section: %v", len(profiles), err)
	}
	if t.Failed() {
		t.Log(results)
	}
}
