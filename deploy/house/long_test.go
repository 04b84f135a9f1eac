package house

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The long tier passes if every part that ran has passed. A part that was not reached is no failure.
func TestLongTier(t *testing.T) {
	script, err := filepath.Abs("../tools/long.sh")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, minutes string
		parts         []string
		fails         bool
		says          []string
	}{
		{"all pass", "", []string{"good:1", "fine:1"}, false, []string{"all passed: good fine"}},
		{"one fails", "", []string{"bad:1", "good:1"}, true, []string{"good: ended at minute 0", "FAILED: bad"}},
		{"no time for one", "5", []string{"good:1", "bad:9"}, false, []string{"all passed: good", "not reached in 5 minutes: bad"}},
		{"no time at all", "0", []string{"bad:1"}, false, []string{"not reached in 0 minutes: bad"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "Makefile"), []byte("good fine:\n\t@true\nbad:\n\t@false\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := os.MkdirAll(filepath.Join(dir, "deploy"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(filepath.Dir(script), filepath.Join(dir, "deploy", "tools")); err != nil {
				t.Fatal(err)
			}
			first, _, _ := strings.Cut(test.parts[0], ":")
			cmd := exec.Command(script, append([]string{"gotestsum", test.minutes, first}, test.parts...)...)
			cmd.Dir = dir
			out, err := cmd.CombinedOutput()
			if (err != nil) != test.fails {
				t.Errorf("long.sh: %v\n%s", err, out)
			}
			for _, words := range test.says {
				if !strings.Contains(string(out), words) {
					t.Errorf("long.sh does not say %q:\n%s", words, out)
				}
			}
		})
	}
}
