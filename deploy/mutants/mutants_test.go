package mutants

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

var run = flag.String("mutants", "", "a regular expression for the names of the mutants to run; empty: all")

// root is the folder of the module, as seen from this package.
const root = "../.."

// mutated returns the file of a mutant with its fault. It fails unless the original text occurs exactly once.
func mutated(m mutant) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		return nil, err
	}
	if n := bytes.Count(text, []byte(m.was)); n != 1 {
		return nil, fmt.Errorf("%s has these lines %d times, want once: change the mutant with the code\n%s", m.file, n, m.was)
	}
	return bytes.Replace(text, []byte(m.was), []byte(m.is), 1), nil
}

// TestTableFitsTheTree checks that each mutant applies to the code, and that its test exists.
func TestTableFitsTheTree(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range mutants {
		if seen[m.name] {
			t.Errorf("two mutants are named %q", m.name)
		}
		seen[m.name] = true
		if _, err := mutated(m); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
		name, _, _ := strings.Cut(m.test, "/")
		files, err := filepath.Glob(filepath.Join(root, m.folder, "*_test.go"))
		must.Succeed(t, err)
		found := false
		for _, file := range files {
			text, err := os.ReadFile(file)
			must.Succeed(t, err)
			found = found || bytes.Contains(text, []byte("\nfunc "+name+"("))
		}
		if !found {
			t.Errorf("%s: %s has no test %s", m.name, m.folder, name)
		}
	}
}

// TestMutants runs the test of each mutant, which must fail.
func TestMutants(t *testing.T) {
	if testing.Short() {
		t.Skip("make test-long runs it")
	}
	names, err := regexp.Compile(*run)
	must.Succeed(t, err)
	for _, m := range mutants {
		if !names.MatchString(m.name) {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			text, err := mutated(m)
			must.Succeed(t, err)
			said, err := runMutant(t, m, text)
			if err != nil {
				t.Fatalf("%s: %s %s: %v\n%s", m.file, m.folder, m.test, err, said)
			}
			t.Logf("%s %s fails: %.200s", m.folder, m.test, reason.Find(said))
		})
	}
}

// reason finds the first line that a test reports, or that a panic prints.
var reason = regexp.MustCompile(`(?m)^ *[a-z0-9_]+_test\.go:\d+: .*|^panic: .*|^ *\[rapid\] .*`)

// runMutant runs the test of a mutant. It returns an error unless that test fails, and what the command printed.
func runMutant(t *testing.T, m mutant, text []byte) (said []byte, err error) {
	t.Helper()
	original, err := filepath.Abs(filepath.Join(root, m.file))
	if err != nil {
		return nil, err
	}
	changed, overlay := filepath.Join(t.TempDir(), "mutant.go"), filepath.Join(t.TempDir(), "overlay.json")
	list, err := json.Marshal(map[string]map[string]string{"Replace": {original: changed}})
	if err != nil {
		return nil, err
	}
	for name, content := range map[string][]byte{changed: text, overlay: list} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			return nil, err
		}
	}
	name, rest, sub := strings.Cut(m.test, "/")
	pattern := "^" + name + "$"
	if sub {
		pattern += "/^" + rest + "$"
	}
	c := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-count=1", "-timeout=5m", "-overlay="+overlay, "-run="+pattern,
		"./"+m.folder)
	c.Dir = root
	c.Env = append(os.Environ(), "RAPID_SEED=1", "RAPID_CHECKS="+m.draws(), "RAPID_NOFAILFILE=1", "RAPID_SHRINKTIME=0s")
	said, err = c.CombinedOutput()
	switch {
	case err == nil && bytes.Contains(said, []byte("no tests to run")):
		return said, fmt.Errorf("there is no such test")
	case err == nil:
		return said, fmt.Errorf("the mutant survives: no check of the test notices the fault")
	case bytes.Contains(said, []byte("[build failed]")) || bytes.Contains(said, []byte("[setup failed]")):
		return said, fmt.Errorf("the mutant does not compile")
	case bytes.Contains(said, []byte("panic: test timed out")):
		return said, fmt.Errorf("the test does not end, which says nothing")
	case !bytes.Contains(said, []byte("--- FAIL: "+name)) && !bytes.Contains(said, []byte("panic: ")):
		return said, fmt.Errorf("the test did not run")
	}
	return said, nil
}
