package logs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// TestDescriptions: every scope that the control plane logs in says what it is about.
func TestDescriptions(t *testing.T) {
	about, found := descriptions(), 0
	named := regexp.MustCompile(`With\(.*"scope", "(\w+)"`)
	for _, part := range []string{"citadel", "galley", "injector", "pilot", "registry"} {
		err := filepath.WalkDir(filepath.Join("..", "..", part), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, m := range named.FindAllStringSubmatch(string(text), -1) {
				if found++; about[m[1]] == "" {
					t.Errorf("%s: scope %s has no description", path, m[1])
				}
			}
			return err
		})
		must.Succeed(t, err)
	}
	if found < 10 {
		t.Errorf("%d loggers were found", found)
	}
}
