package vulncheck

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/binaries"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

type object = map[string]any

// entry is a vulnerability of all versions of a module: of one function in one of its packages.
type entry struct{ id, module, function string }

// database writes a database in the format of vuln.go.dev.
func database(t *testing.T, entries ...entry) string {
	t.Helper()
	const day = "2026-11-01T00:00:00Z"
	dir := t.TempDir()
	write := func(name string, content any) {
		text, err := json.Marshal(content)
		must.Succeed(t, err)
		must.Succeed(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		must.Succeed(t, os.WriteFile(filepath.Join(dir, name), text, 0o644))
	}
	var modules, ids []object
	for _, e := range entries {
		modules = append(modules, object{"path": e.module, "vulns": []object{{"id": e.id, "modified": day}}})
		ids = append(ids, object{"id": e.id, "modified": day})
		write("ID/"+e.id+".json", object{
			"schema_version": "1.3.1", "id": e.id, "modified": day, "published": day, "summary": "It does what it should not.", "details": "Always.",
			"affected": []object{{
				"package": object{"ecosystem": "Go", "name": e.module},
				"ranges":  []object{{"type": "SEMVER", "events": []object{{"introduced": "0"}}}},
				"ecosystem_specific": object{
					"imports": []object{{"path": e.module, "symbols": []string{e.function}}},
				},
			}},
			"database_specific": object{"url": "https://pkg.go.dev/vuln/" + e.id},
		})
	}
	write("index/db.json", object{"modified": day})
	write("index/modules.json", modules)
	write("index/vulns.json", ids)
	return dir
}

func TestVulncheck(t *testing.T) {
	root, err := binaries.ModuleRoot()
	must.Succeed(t, err)
	if _, err := os.Stat(filepath.Join(root, ".tools", "govulncheck")); err != nil {
		t.Fatalf("%v: `make %s` builds it", err, filepath.Join(root, ".tools", "govulncheck"))
	}
	called := entry{"GO-2026-9001", "github.com/spf13/cobra", "Command.ExecuteContext"}
	uncalled := entry{"GO-2026-9002", "github.com/spf13/pflag", "IPMaskVarP"}
	unlinked := entry{"GO-2026-9003", "example.com/not/ours", "Do"}
	for _, test := range []struct {
		name    string
		entries []entry
		fails   bool
	}{
		{"called", []entry{called, uncalled, unlinked}, true},
		{"not called", []entry{uncalled, unlinked}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			cmd := exec.Command("make", "--no-print-directory", "vulncheck", "DB="+database(t, test.entries...), "PROGRAM=./cmd/pilot-agent")
			cmd.Dir = root
			out, err := cmd.CombinedOutput()
			if (err != nil) != test.fails {
				t.Fatalf("%v\n%s", err, out)
			}
			if found := strings.Contains(string(out), "Vulnerability #1: "+called.id); found != test.fails {
				t.Errorf("%s is named: %v\n%s", called.id, found, out)
			}
			for _, e := range []entry{uncalled, unlinked} {
				if strings.Contains(string(out), ": "+e.id) {
					t.Errorf("%s is named\n%s", e.id, out)
				}
			}
		})
	}
	t.Run("no database", func(t *testing.T) {
		cmd := exec.Command("make", "--no-print-directory", "vulncheck", "DB="+t.TempDir(), "PROGRAM=./cmd/pilot-agent")
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err == nil {
			t.Errorf("a folder without a database has no vulnerabilities:\n%s", out)
		}
	})
}
