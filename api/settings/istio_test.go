//go:build compat

package settings

import (
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// TestVariablesAsIstio checks that the tables have each variable that the documentation of Istio's own programs has,
// with its default. ISTIOD and PILOT_AGENT name the programs.
func TestVariablesAsIstio(t *testing.T) {
	for variable, table := range map[string][]Setting{"ISTIOD": Environment(), "PILOT_AGENT": Agent()} {
		program := os.Getenv(variable)
		if program == "" {
			t.Fatalf("%s names no program", variable)
		}
		dir := t.TempDir()
		cmd := exec.CommandContext(t.Context(), program, "collateral", "--html_fragment_with_front_matter", "-o", dir)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", program, err, out)
		}
		pages, err := filepath.Glob(filepath.Join(dir, "*.html"))
		must.Succeed(t, err)
		found := 0
		for _, page := range pages {
			text, err := os.ReadFile(page)
			must.Succeed(t, err)
			for _, m := range row.FindAllSubmatch(text, -1) {
				name, value := html.UnescapeString(string(m[1])), html.UnescapeString(string(m[2]))
				found++
				s := Find(table, name)
				if s == nil {
					s = Find(slices.Concat(Environment(), Agent()), name)
				}
				if s == nil {
					t.Errorf("%s reads %s, and no table has it", variable, name)
				} else if !s.IsDefault(value) || value == "" && s.Default != "" {
					t.Errorf("%s: the default of %s is %q, and the table says %q", variable, name, value, s.Default)
				}
			}
		}
		if found < 100 {
			t.Errorf("%s: only %d variables are documented in %v", variable, found, pages)
		}
	}
}

// row matches the row of a variable: its name and its default.
var row = regexp.MustCompile(`<tr id='[^']*'[^>]*>\s*<td><a href='[^']*'><code>([^<]*)</code></a></td>\s*<td>[^<]*</td>\s*` +
	`<td><code>([^<]*)</code></td>`)
