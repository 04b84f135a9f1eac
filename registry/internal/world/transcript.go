package world

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"pgregory.net/rapid"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/registry"
)

// Transcripts runs each testdata/*.txtar that matches glob as a test. Its files are steps. "apply" and "delete" hold
// documents: each file is one batch. An ID after the word selects a remote cluster. "want" holds the changes since the
// last "want", followed by state. With update each "want" is rewritten.
func Transcripts(t *testing.T, glob string, update *bool, start func() (r registry.Registry, state func() string)) {
	paths, err := filepath.Glob(filepath.Join("testdata", glob))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no testdata/%s: %v", glob, err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			a, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			r, state := start()
			all, since := NewTables(), NewTables()
			for i := range a.Files {
				f := &a.Files[i]
				var batch []kinds.Change
				step, cluster, _ := strings.Cut(f.Name, " ")
				switch step {
				case "apply":
					batch = In(cluster, Parse(t, string(f.Data)))
				case "delete":
					batch = Delete(In(cluster, Parse(t, string(f.Data))))
				case "want":
					got := since.Dump() + state()
					if *update {
						f.Data = []byte(got)
					} else if d := cmp.Diff(string(f.Data), got); d != "" {
						t.Errorf("step %d (-want +got):\n%s", i+1, d)
					}
					since = NewTables()
					continue
				default:
					t.Fatalf("unknown step %q", f.Name)
				}
				c := r.Apply(batch)
				if err := all.Apply(c); err != nil {
					t.Fatalf("step %d: %v", i+1, err)
				}
				since.add(c)
			}
			if *update {
				if err := os.WriteFile(path, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// UpdateFlag declares -update for a test binary.
func UpdateFlag() *bool {
	return flag.Bool("update", false, "write the expectations of transcripts anew")
}

func (t *Tables) add(c registry.Changes) {
	for k, v := range c.Services {
		t.Services[k] = v
	}
	for k, v := range c.Endpoints {
		t.Endpoints[k] = v
	}
	for k, v := range c.Workloads {
		t.Workloads[k] = v
	}
}

// Sum applies one batch to a registry and returns the result as tables.
func Sum(tb rapid.TB, r registry.Registry, batch []kinds.Change) *Tables {
	tb.Helper()
	t := NewTables()
	if err := t.Apply(r.Apply(batch)); err != nil {
		tb.Fatalf("in one batch: %v", err)
	}
	return t
}
