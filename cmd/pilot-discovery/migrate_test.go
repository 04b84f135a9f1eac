package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/api/settings"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/env"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// TestWhatIstiodHas checks the table of docs/migrate.md. A variable, an annotation or a label has an effect in the rows
// that say so, and in no other row. A variable that is not known is an error.
func TestWhatIstiodHas(t *testing.T) {
	effects := map[string]settings.Effect{}
	for _, list := range [][]settings.Setting{settings.Environment(), settings.Agent(), settings.Metadata()} {
		for _, s := range list {
			name := s.Name
			if _, key, found := strings.Cut(name, ":"); found {
				name = key
			}
			effects[name] = s.Effect
		}
	}
	for _, v := range env.All() { // some are of later releases of Istio
		effects[v.Name] = settings.Works
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "migrate.md"))
	must.Succeed(t, err)
	_, section, _ := strings.Cut(string(text), "\n## What istiod has\n")
	quoted := regexp.MustCompile("`([^`]+)`")
	variable := regexp.MustCompile(`^[A-Z][A-Z0-9]*(_[A-Z0-9]+)+$`)
	checked := 0
	for line := range strings.Lines(section) {
		feature, here, found := strings.Cut(strings.Trim(line, "| \n"), " | ")
		if !found {
			continue
		}
		for _, m := range quoted.FindAllStringSubmatch(feature, -1) {
			effect, known := effects[m[1]]
			switch works := strings.HasPrefix(here, "works"); {
			case !known && variable.MatchString(m[1]):
				t.Errorf("%s is not a variable of istiod, of its agent or of this project", m[1])
			case known && works != (effect == settings.Works):
				t.Errorf("%s: the table says %q, and api/settings has its effect as %q", m[1], here, string(effect))
			case known:
				checked++
			}
		}
	}
	if checked < 40 {
		t.Errorf("only %d settings of the table were found in api/settings", checked)
	}
}
