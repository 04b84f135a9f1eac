package file

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	networkingv1 "istio.io/api/networking/v1"
)

func TestFirstLoad(t *testing.T) {
	w := newWorld(t, map[string]string{
		"b.yaml": vs("b", "b") + "---\n" + vs("a", "a"), "a.yml": "apiVersion: v1\nkind: Namespace\nmetadata: {name: z}\n",
		"sub/c.json": `{"apiVersion":"v1","kind":"Service","metadata":{"name":"c"},"spec":{}}` + "\n",
		"notes.txt":  "no: yaml: at: all", ".hidden/x.yaml": vs("x", "x"), "bad.yaml": vs("bad", "bad") + "  extra: 1\n",
	})
	w.run(Options{})
	if n := w.batchCount(); n != 1 {
		t.Fatalf("%d calls of the handler", n)
	}
	var order []string
	for _, c := range w.batches[0] {
		order = append(order, c.String())
	}
	want := "Namespace z, Service default/c, VirtualService default/a, VirtualService default/b, VirtualService default/bad"
	if got := strings.Join(order, ", "); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	d := w.finding("UnknownField", true)
	if want := w.path("bad.yaml"); d.File != want || d.Line != 11 || d.Column != 3 {
		t.Errorf("finding at %s:%d:%d, want %s:11:3", d.File, d.Line, d.Column, want)
	}
	if got, want := w.batches[0][2].Object.Position, w.path("b.yaml")+":12:1"; got != want {
		t.Errorf("position %s, want %s", got, want)
	}
}

func TestFirstLoadOfNothing(t *testing.T) {
	w := newWorld(t, nil)
	w.run(Options{})
	if w.batchCount() != 1 {
		t.Errorf("%d calls of the handler, want an empty one", w.batchCount())
	}
	w.write("a.yaml", vs("a", "a"))
	w.expect("a=a")
}

func TestFirstLoadRefusesBrokenSecurity(t *testing.T) {
	policy := "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: deny-all, namespace: a}\nspec:\n  "
	meshText := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: istio, namespace: istio-system}\ndata:\n  mesh: |\n"
	grant := "apiVersion: gateway.networking.k8s.io/v1beta1\nkind: ReferenceGrant\nmetadata: {name: g, namespace: a}\n" +
		"spec: {from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: b}], to: [{group: \"\", kind: Service}]}\n"
	for name, text := range map[string]string{
		"field":   policy + "ruls: []\n",
		"meaning": policy + "action: DENY\n",
		"syntax":  policy + "rules: [\n",
		"version": strings.Replace(policy, "/v1", "/v7", 1) + "rules: []\n",
		"kind":    strings.Replace(policy, "AuthorizationPolicy", "AuthorisationPolicy", 1) + "rules: []\n",

		"no name":        strings.Replace(vs("a", "b"), "  name: a", "  nmae: a", 1),
		"no namespace":   strings.Replace(vs("a", "b"), "  name: a", "  name: a\n  namespce: b", 1),
		"no good labels": strings.Replace(policy, "metadata: {", "metadata: {labels: 1, ", 1) + "{}\n",

		"cut in apiVersion":        "apiVersion: security.ist",
		"cut in the first word":    "apiVer",
		"cut in kind":              "apiVersion: security.istio.io/v1\nki",
		"cut before kind":          "apiVersion: v1\n",
		"cut in the value":         "apiVersion: security.istio.io/v1\nkind: Auth",
		"cut in the second object": "apiVersion: v1\nkind: Namespace\nmetadata: {name: z}\n---\napiVersion: security.istio.io/v1\nki",
		"not UTF-8":                "apiVersion: v1\nkind: Service\nmetadata: {name: a} # caf\xe9\n",
		"NUL":                      "apiVersion: v1\nkind: Service\nmetadata: {name: a} # \x00\n",
		"too large":                "# " + strings.Repeat("x", 5000) + "\n" + policy + "{}\n",
		"too deep":                 "apiVersion: a.b/v1\nspec: " + strings.Repeat("[", 200) + strings.Repeat("]", 200) + "\n",
		"a list":                   "- apiVersion: security.istio.io/v1\n  kind: AuthorizationPolicy\n",
		"mesh, syntax":             meshText + "    trustDomain: a\n x: [\n",
		"mesh, kind":               strings.Replace(meshText, "ConfigMap", "ConfigMapp", 1) + "    trustDomain: a\n",
		"Sidecar, syntax":          "apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {name: default}\nspec: [\n",
		"Sidecar, name":            "apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {}\nspec: {}\n",
		"no separator":             "apiVersion: v1\nkind: Namespace\nmetadata: {name: z}\n" + policy + "{}\n",
		"mesh, field":              meshText + "    trustDomain: a\nx: 1\n",
		"another version":          vs("a", "b"),
		"grant, another version":   grant + "---\n" + strings.Replace(grant, "HTTPRoute", "TCPRoute", 1),
		"mesh, another version":    meshText + "    trustDomain: a\n---\n" + meshText + "    trustDomain: b\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, map[string]string{"ok.yaml": vs("a", "a"), "policy.yaml": text})
			w.refused("policy.yaml")
		})
	}
}

// refused runs a source that must not get through its first load because of a file.
func (w *world) refused(file string) {
	w.t.Helper()
	l := limits.Default()
	l.FileSize = 4000
	source, err := New(Options{Dir: w.dir, Handler: w.handle, Limits: l,
		Vital: func(k kinds.Key) bool { return k.Name == "" || k.Name == "istio" }})
	w.must(err)
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	err = source.Run(ctx)
	if err == nil || !strings.Contains(err.Error(), w.path(file)) {
		w.t.Errorf("Run: %v", err)
	}
	if source.HasSynced() || w.batchCount() > 0 {
		w.t.Error("something was handed on")
	}
	if !slices.ContainsFunc(source.Findings(), func(d diag.Diagnostic) bool {
		return d.File == w.path(file) && d.Severity == diag.Error && d.Fix != ""
	}) {
		w.t.Errorf("findings %v", source.Findings())
	}
}

// TestFirstLoadRefusesWhatItCannotRead has files and directories of which nothing can be known.
func TestFirstLoadRefusesWhatItCannotRead(t *testing.T) {
	outside := t.TempDir()
	must.Succeed(t, os.WriteFile(filepath.Join(outside, "p.yaml"), []byte(vs("p", "p")), 0o600))
	for name, c := range map[string]struct {
		at   string
		make func(path string) error
	}{
		"link to nowhere":               {"p.yaml", func(p string) error { return os.Symlink("nowhere.yaml", p) }},
		"link to a file outside":        {"p.yaml", func(p string) error { return os.Symlink(filepath.Join(outside, "p.yaml"), p) }},
		"link to a folder outside":      {"more", func(p string) error { return os.Symlink(outside, p) }},
		"link to a folder with a dot":   {"v1.2", func(p string) error { return os.Symlink(outside, p) }},
		"link to a folder that is gone": {"more.d", func(p string) error { return os.Symlink("nowhere", p) }},
		"link to itself":                {"p.yaml", func(p string) error { return os.Symlink("p.yaml", p) }},
		"volume without ..data":         {"p.yaml", func(p string) error { return os.Symlink("..data/p.yaml", p) }},
		"pipe":                          {"p.yaml", func(p string) error { return syscall.Mkfifo(p, 0o600) }},
		"nested too deep": {strings.TrimPrefix(strings.Repeat("/d", maxDirDepth+1), "/"),
			func(p string) error { return os.MkdirAll(p, 0o755) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, map[string]string{"ok.yaml": vs("a", "a")})
			w.must(c.make(w.path(c.at)))
			w.refused(c.at)
		})
	}
	t.Run("no permission", func(t *testing.T) {
		obeyPermissions(t)
		w := newWorld(t, map[string]string{"ok.yaml": vs("a", "a"), "p.yaml": vs("p", "p")})
		w.must(os.Chmod(w.path("p.yaml"), 0))
		w.refused("p.yaml")
	})
}

// obeyPermissions takes the right to read every file from the thread of the test, whose goroutine does the first load.
// The thread ends with the goroutine.
func obeyPermissions(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	must.Succeed(t, unix.Capget(&header, &sets[0]))
	sets[0].Effective &^= 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH
	must.Succeed(t, unix.Capset(&header, &sets[0]))
}

// TestFirstLoadPassesOver has files that the source does not read, which need not be readable, and an object twice.
func TestFirstLoadPassesOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{
		"a.yaml": vs("a", "a"), "values.yaml": "replicas: 3\n", "broken.yaml": "apiVersion: apps/v1\nkind: Deployment\nspec: [\n",
		"empty.yaml": "# a comment\n", "same.yaml": vs("a", "a"),
	})
	w.must(os.Symlink("nowhere", w.path(".#a.yaml")))
	w.must(os.Symlink("nowhere", w.path("notes.txt")))
	w.must(syscall.Mkfifo(w.path("pipe"), 0o600))
	w.run(Options{})
	w.expect("a=a")
}

func TestNewNeedsDirectory(t *testing.T) {
	dir := t.TempDir()
	if _, err := New(Options{Dir: filepath.Join(dir, "none")}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
	file := filepath.Join(dir, "file")
	must.Succeed(t, os.WriteFile(file, nil, 0o600))
	if _, err := New(Options{Dir: file}); err == nil {
		t.Error("a file was accepted")
	}
}

func TestCreateChangeDelete(t *testing.T) {
	both(t, func(t *testing.T, start func(map[string]string) *world) {
		w := start(map[string]string{"a.yaml": vs("a", "one")})
		w.expect("a=one")
		w.write("b.yaml", vs("b", "b"))
		w.expect("a=one b=b")
		w.write("a.yaml", vs("a", "two"))
		w.expect("a=two b=b")
		w.must(os.Remove(w.path("a.yaml")))
		w.expect("b=b")
		w.write("new/deep/c.yaml", vs("c", "c"))
		w.expect("b=b c=c")
		w.write("new/deep/c.yaml", vs("c", "changed"))
		w.expect("b=b c=changed")
		w.must(os.RemoveAll(w.path("new")))
		w.expect("b=b")
		if len(w.source.Findings()) > 0 {
			t.Errorf("findings %v", w.source.Findings())
		}
	})
}

func TestUnchangedKeepsPointerAndIsNoChange(t *testing.T) {
	both(t, func(t *testing.T, start func(map[string]string) *world) {
		w := start(map[string]string{"a.yaml": vs("a", "a") + "---\n" + vs("b", "b")})
		w.expect("a=a b=b")
		before := maps.Clone(w.objects)
		w.write("a.yaml", "# a comment\n"+vs("a", "a")+"---\n"+vs("b", "changed"))
		w.expect("a=a b=changed")
		w.mu.Lock()
		defer w.mu.Unlock()
		for key, o := range w.objects {
			if key.Name == "a" && before[key] != o {
				t.Error("a lost its pointer")
			}
		}
		if last := w.batches[len(w.batches)-1]; len(last) != 1 || last[0].Name != "b" {
			t.Errorf("last changes %v", last)
		}
	})
}

func TestBreakAndMend(t *testing.T) {
	both(t, func(t *testing.T, start func(map[string]string) *world) {
		w := start(map[string]string{"a.yaml": vs("a", "a") + "---\n" + vs("b", "b"), "other.yaml": vs("o", "o")})
		w.expect("a=a b=b o=o")

		// A document that does not decode keeps its object; the other goes on.
		w.write("a.yaml", vs("a", "two")+"---\n"+vs("b", "two")+"  htpp: []\n")
		w.expect("a=two b=b o=o")
		if d := w.finding("UnknownField", true); d.Field != "spec.htpp" || d.Object != "VirtualService default/b" ||
			!strings.Contains(d.Fix, `"http"`) {
			t.Errorf("finding %v", d)
		}
		// A file that does not parse keeps all.
		w.write("a.yaml", vs("a", "three")+"---\n"+vs("b", "three")+" x: [\n# filler, so that the file is no shorter than it was\n")
		w.finding("Syntax", true)
		w.stays("a=two b=b o=o", 100*time.Millisecond)
		// A document whose name is not certain may be the one that is gone.
		w.write("a.yaml", vs("a", "four")+"---\n"+strings.Replace(vs("b", "four"), "  name:", "  nmae:", 1)+strings.Repeat("#\n", 60))
		w.expect("a=four b=b o=o")
		w.finding("Syntax", false)
		// So may one whose kind is mistyped.
		w.write(
			"a.yaml", vs("a", "five")+"---\n"+strings.Replace(vs("b", "five"), "VirtualService", "VirtualServic", 1)+strings.Repeat("#\n", 90),
		)
		w.expect("a=five b=b o=o")
		w.finding("UnknownKind", true)
		w.write("a.yaml", vs("a", "six")+"---\n"+vs("b", "six"))
		w.expect("a=six b=six o=o")
		w.eventually("end of findings", func() bool { return len(w.source.Findings()) == 0 })
	})
}

// TestLastGoodBeside has a policy whose last good version is in force beside it, in two files, and a file that cannot
// be read. The last good version goes as soon as the policy is mended, and is no duplicate.
func TestLastGoodBeside(t *testing.T) {
	t.Parallel()
	policy := func(action string) string {
		return "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: p}\nspec: {action: " +
			action + ", rules: [{to: [{operation: {paths: [/a]}}]}]}\n"
	}
	w := newWorld(t, map[string]string{"a.yaml": policy("ALLOW")})
	w.run(Options{})
	w.write("b.yaml", policy("AUDIT"))
	duplicates := func() (n int) {
		for _, d := range w.source.Findings() {
			if d.Code == "DuplicateObject" {
				n++
			}
		}
		return n
	}
	w.eventually("a duplicate", func() bool { return duplicates() == 1 })
	w.write("a.yaml", policy("DENNY"))
	w.write("b.yaml", policy("AUDITT"))
	const both = "AuthorizationPolicy default/p AuthorizationPolicy default/p (last good version)"
	w.expect(both)
	w.eventually("a finding for each file", func() bool {
		n := 0
		for _, d := range w.source.Findings() {
			if d.Code == "UnknownValue" {
				n++
			}
		}
		return n == 2
	})
	if n := duplicates(); n != 1 {
		t.Errorf("%d duplicates: %v", n, w.source.Findings())
	}
	w.write("broken.yaml", policy("ALLOW")+"x: [\n")
	w.finding("Syntax", true)
	w.expect(both)
	w.write("a.yaml", policy("ALLOW"))
	w.must(os.Remove(w.path("b.yaml")))
	w.expect("AuthorizationPolicy default/p")
}

// TestWrongMetadata adds objects with faults of the metadata while the source runs. An object whose name can be read is
// in force, and a finding says what is left out.
func TestWrongMetadata(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"a.yaml": vs("a", "a")})
	w.run(Options{})
	for name, metadata := range map[string]string{
		"labels": "labels: [x]", "unknown": "clusterName: x", "annotation": "annotations: {'a b': c}",
	} {
		w.write(name+".yaml", strings.Replace(vs(name, "new"), "metadata:\n", "metadata:\n  "+metadata+"\n", 1))
	}
	w.write("name.yaml", vs("Bad_Name", "new"))
	w.write("none.yaml", strings.Replace(vs("none", "new"), "  name: none", "  annotations: {}", 1))
	w.expect("Bad_Name=new a=a annotation=new labels=new unknown=new")
	for file, fix := range map[string]string{
		"labels": "the rest of the object is in force", "unknown": "the rest of the object is in force",
		"annotation": "the rest of the object is in force",
		"name":       "the rest of the object is in force", "none": "the document is not used",
	} {
		w.eventually(file, func() bool {
			return slices.ContainsFunc(
				w.source.Findings(), func(d diag.Diagnostic) bool { return d.File == w.path(file+".yaml") && strings.Contains(d.Fix, fix) },
			)
		})
	}
}

// An object that is gone while a file cannot be read may have been moved there, and stays if it restricts something.
func TestMovedIntoBrokenFile(t *testing.T) {
	service := "apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {ports: [{port: 80}]}\n"
	moves := map[string]func(w *world){
		"a new file": func(w *world) { w.write("new.yaml", vs("a", "a")+" x: [\n") },
		"a file with objects": func(w *world) {
			w.write("other.yaml", vs("o", "o")+"---\n"+vs("a", "a")+" x: [\n")
		},
		"a document without a name": func(w *world) { w.write("new.yaml", strings.Replace(vs("a", "a"), "  name:", "  nmae:", 1)) },
		"a kind that is mistyped":   func(w *world) { w.write("new.yaml", strings.Replace(vs("a", "a"), "VirtualS", "VirtualSs", 1)) },
		"a document of two objects": func(w *world) { w.write("new.yaml", service+vs("a", "a")) },
		"a link to nowhere":         func(w *world) { w.must(os.Symlink("nowhere.yaml", w.path("new.yaml"))) },
	}
	for name, move := range moves {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, start func(map[string]string) *world) {
				w := start(map[string]string{"a.yaml": vs("a", "a") + "---\n" + service, "other.yaml": vs("o", "o")})
				w.expect("Service default/s a=a o=o")
				move(w)
				w.must(os.Remove(w.path("a.yaml")))
				w.finding("MayBeMoved", true)
				w.expect("a=a o=o")
				w.stays("a=a o=o", 100*time.Millisecond)
				w.write("z.yaml", vs("z", "z"))
				w.expect("a=a o=o z=z")
				w.must(os.RemoveAll(w.path("new.yaml")))
				w.write("other.yaml", vs("o", "o"))
				w.expect("o=o z=z")
				w.finding("MayBeMoved", false)
			})
		})
	}
}

func TestTornFile(t *testing.T) {
	both(t, func(t *testing.T, start func(map[string]string) *world) {
		old := vs("a", "old") + "---\n" + vs("b", "old")
		w := start(map[string]string{"a.yaml": old})
		w.expect("a=old b=old")
		text := vs("a", "new") + "---\n" + vs("b", "new")
		f, err := os.OpenFile(w.path("a.yaml"), os.O_WRONLY|os.O_TRUNC, 0)
		w.must(err)
		_, err = f.WriteString(text[:len(text)/2])
		w.must(err)
		w.stays("a=old b=old", 300*time.Millisecond)
		_, err = f.WriteString(text[len(text)/2:])
		w.must(err)
		w.must(f.Close())
		w.expect("a=new b=new")
		for _, batch := range w.batches[1:] {
			if len(batch) != 2 {
				t.Errorf("half a file was handed on: %v", batch)
			}
		}
	})
}

func TestTruncatedFileKeepsContentForAWhile(t *testing.T) {
	both(t, func(t *testing.T, start func(map[string]string) *world) {
		w := start(map[string]string{"a.yaml": vs("a", "a"), "b.yaml": vs("b", "b")})
		w.expect("a=a b=b")
		w.overwrite("a.yaml", 0, "")
		w.finding("Emptied", true)
		w.stays("a=a b=b", 300*time.Millisecond)
		w.overwrite("a.yaml", 0, vs("a", "a"))
		w.finding("Emptied", false)
		w.stays("a=a b=b", 100*time.Millisecond)
		w.overwrite("a.yaml", 0, "")
		w.expect("b=b")
		w.finding("Emptied", false)
	})
}

func TestReplacedByRename(t *testing.T) {
	both(t, func(t *testing.T, start func(map[string]string) *world) {
		w := start(map[string]string{"a.yaml": vs("a", "first")})
		w.expect("a=first")
		for i := range 20 {
			w.write(".tmp", strings.TrimSuffix(vs("a", fmt.Sprintf("v%d", i)), "\n"))
			w.must(os.Rename(w.path(".tmp"), w.path("a.yaml")))
			w.expect(fmt.Sprintf("a=v%d", i))
		}
		w.must(os.Rename(w.path("a.yaml"), w.path("b.yaml")))
		w.stays("a=v19", 300*time.Millisecond)
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.told) > 0 {
			t.Errorf("findings came up: %v", w.told)
		}
	})
}

func TestRemovedAndWrittenAnew(t *testing.T) {
	both(t, func(t *testing.T, start func(map[string]string) *world) {
		w := start(map[string]string{"a.yaml": vs("a", "a"), "b.yaml": vs("b", "b")})
		w.expect("a=a b=b")
		i := 0
		w.eventually("the file is back in time", func() bool {
			i++
			before, began := w.batchCount(), time.Now()
			w.must(os.Remove(w.path("a.yaml")))
			time.Sleep(40 * time.Millisecond)
			w.write("a.yaml", vs("a", fmt.Sprint("now", i)))
			inTime := time.Since(began) < restMissing // else the machine is too busy, and the object may be deleted
			w.expect(fmt.Sprintf("a=now%d b=b", i))
			w.mu.Lock()
			defer w.mu.Unlock()
			for _, batch := range w.batches[before:] {
				for _, c := range batch {
					if c.Object == nil && inTime {
						t.Errorf("%s was deleted in between", c.Key)
					}
				}
			}
			return inTime
		})
	})
}

func TestDuplicateObjects(t *testing.T) {
	both(t, func(t *testing.T, start func(map[string]string) *world) {
		w := start(map[string]string{"a.yaml": vs("a", "first"), "z.yaml": vs("z", "z")})
		w.write("b.yaml", vs("a", "second"))
		w.expect("a=first z=z")
		if d := w.finding("DuplicateObject", true); d.File != w.path("b.yaml") || d.Line != 1 ||
			!strings.Contains(d.Message, w.path("a.yaml")+":1:1") {
			t.Errorf("finding %v", d)
		}
		w.must(os.Remove(w.path("a.yaml")))
		w.expect("a=second z=z")
		w.finding("DuplicateObject", false)
		w.write("b.yaml", vs("a", "one")+"---\n"+vs("a", "two"))
		w.expect("a=one z=z")
		if d := w.finding("DuplicateObject", true); d.Line != 12 {
			t.Errorf("finding %v", d)
		}
	})
}

// A mounted ConfigMap: DIR/a.yaml -> ..data/a.yaml, DIR/..data -> ..v1, and ..data is exchanged by rename.
func TestDataLinkSwap(t *testing.T) {
	both(t, func(t *testing.T, start func(map[string]string) *world) {
		w := start(nil)
		publish := func(i int, files map[string]string) {
			version := fmt.Sprintf("..v%d", i)
			for name, text := range files {
				w.write(filepath.Join(version, name), text)
			}
			w.must(os.Symlink(version, w.path("..data_tmp")))
			w.must(os.Rename(w.path("..data_tmp"), w.path("..data")))
			w.must(os.RemoveAll(w.path(fmt.Sprintf("..v%d", i-1))))
		}
		publish(0, map[string]string{"a.yaml": vs("a", "v0"), "b.yaml": vs("b", "v0")})
		w.must(os.Symlink("..data/a.yaml", w.path("a.yaml")))
		w.must(os.Symlink("..data/b.yaml", w.path("b.yaml")))
		w.expect("a=v0 b=v0")
		for i := 1; i <= 20; i++ {
			publish(i, map[string]string{"a.yaml": vs("a", fmt.Sprintf("v%d", i)), "b.yaml": vs("b", fmt.Sprintf("v%d", i))})
			w.expect(fmt.Sprintf("a=v%d b=v%d", i, i))
		}
		w.eventually("end of findings", func() bool { return len(w.source.Findings()) == 0 })
	})
}

func TestDirectoryVanishesOrEmpties(t *testing.T) {
	both(t, func(t *testing.T, start func(map[string]string) *world) {
		w := start(map[string]string{"a.yaml": vs("a", "a"), "sub/b.yaml": vs("b", "b")})
		w.expect("a=a b=b")
		aside := t.TempDir()
		w.must(os.Rename(w.dir, aside+"/moved"))
		if d := w.finding("NoDirectory", true); d.File != w.dir {
			t.Errorf("finding %v", d)
		}
		w.stays("a=a b=b", 200*time.Millisecond)
		w.must(os.Mkdir(w.dir, 0o755))
		time.Sleep(50 * time.Millisecond)
		w.finding("NoDirectory", true)
		w.stays("a=a b=b", 200*time.Millisecond)
		w.write("c.yaml", vs("c", "c"))
		w.expect("c=c")
		w.finding("NoDirectory", false)
		w.write("c.yaml", vs("c", "again"))
		w.expect("c=again")
	})
}

func TestLinksThatLeaveAreRefused(t *testing.T) {
	both(t, func(t *testing.T, start func(map[string]string) *world) {
		outside := filepath.Join(t.TempDir(), "secret.yaml")
		must.Succeed(t, os.WriteFile(outside, []byte(vs("secret", "s")), 0o600))
		w := start(map[string]string{"a.yaml": vs("a", "a"), "real/b.yaml": vs("b", "b")})
		w.must(os.Symlink(outside, w.path("abs.yaml")))
		w.must(os.Symlink("../../../../../../../../etc", w.path("up")))
		w.must(os.Symlink(".", w.path("loop")))
		w.must(os.Symlink("self.yaml", w.path("self.yaml")))
		w.must(os.Symlink("real", w.path("alias")))
		w.must(syscall.Mkfifo(w.path("pipe.yaml"), 0o600))
		w.finding("NotAFile", true)
		w.must(os.WriteFile(w.path("deny.yam"), []byte(vs("c", "c")), 0o600))
		for _, name := range []string{"README.md", "page.html", "a.xml", "b.toml", "c.txt", "values.tmpl"} {
			w.must(os.WriteFile(w.path(name), []byte("text"), 0o600))
		}
		w.eventually("one misspelt name", func() bool {
			var files []string
			for _, d := range w.source.Findings() {
				if d.Code == "NotRead" {
					files = append(files, filepath.Base(d.File))
				}
			}
			return slices.Equal(files, []string{"deny.yam"})
		})
		w.expect("a=a b=b")
		w.eventually("three refusals", func() bool {
			var files []string
			for _, d := range w.source.Findings() {
				if d.Code == "Unreadable" {
					files = append(files, filepath.Base(d.File))
				}
			}
			return slices.Equal(files, []string{"abs.yaml", "self.yaml", "up"})
		})
		w.stays("a=a b=b", 150*time.Millisecond)
	})
}

func TestUnreadableKeepsContent(t *testing.T) {
	both(t, func(t *testing.T, start func(map[string]string) *world) {
		w := start(map[string]string{"a.yaml": vs("a", "a"), "sub/b.yaml": vs("b", "b")})
		w.expect("a=a b=b")
		// What root may read anyway: a link to nowhere, and a FIFO in the file's place.
		w.must(os.Remove(w.path("a.yaml")))
		w.must(os.Symlink("nowhere", w.path("a.yaml")))
		w.finding("Unreadable", true)
		w.stays("a=a b=b", 250*time.Millisecond)
		w.must(os.Remove(w.path("a.yaml")))
		w.write("a.yaml", vs("a", "two"))
		w.expect("a=two b=b")
		w.finding("Unreadable", false)
	})
}

func TestLimits(t *testing.T) {
	l := limits.Default()
	l.Files, l.FileSize, l.FilesTotal = 3, 4000, 8000
	w := newWorld(t, map[string]string{"2.yaml": vs("b", "b"), "3.yaml": vs("c", "c")})
	w.run(Options{Limits: l})
	w.expect("b=b c=c")
	w.write("1.yaml", vs("a", "a")+strings.Repeat("#\n", 2000))
	w.write("4.yaml", vs("d", "d"))
	w.eventually("both limits", func() bool { return len(w.source.Findings()) == 2 })
	w.expect("b=b c=c")
	var got []string
	for _, d := range w.source.Findings() {
		got = append(got, filepath.Base(d.File)+" "+d.Code)
	}
	if want := "1.yaml Limit, 4.yaml Limit"; strings.Join(got, ", ") != want {
		t.Errorf("findings %v, want %s", got, want)
	}
	w.must(os.Remove(w.path("1.yaml")))
	w.expect("b=b c=c d=d")
}

// TestDeepDirectories: a tree has an end, and what is below it is a finding.
func TestDeepDirectories(t *testing.T) {
	deep := strings.Repeat("d/", maxDirDepth)
	w := newWorld(t, map[string]string{deep + "in.yaml": vs("a", "a")})
	w.run(Options{})
	w.expect("a=a")
	w.write(deep+"d/out.yaml", vs("b", "b"))
	w.write("last.yaml", vs("c", "c"))
	w.expect("a=a c=c")
	w.eventually("the finding", func() bool { return len(w.source.Findings()) > 0 })
	if list := w.source.Findings(); len(list) != 1 || list[0].Code != "Limit" ||
		!strings.Contains(list[0].Message, "nested more than 64 levels") {
		t.Errorf("%v", list)
	}
}

// TestFilesThatBecomeOthers: what was a file when the directory was read may be another thing when it is opened.
func TestFilesThatBecomeOthers(t *testing.T) {
	dir := t.TempDir()
	must.Succeed(t, syscall.Mkfifo(filepath.Join(dir, "fifo.yaml"), 0o600))
	root, err := os.OpenRoot(dir)
	must.Succeed(t, err)
	defer root.Close()
	for _, name := range []string{"fifo.yaml", "."} {
		if data, _, _, err := read(root, name, 100); err == nil || !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
}

func TestFindingsAreToldOnce(t *testing.T) {
	var mu sync.Mutex
	var log strings.Builder
	lines := func(part string) int {
		mu.Lock()
		defer mu.Unlock()
		return strings.Count(log.String(), part)
	}
	w := newWorld(t, map[string]string{"a.yaml": vs("a", "a") + "  htpp: []\n"})
	w.run(Options{NoWatch: true, Poll: 10 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(writer(func(p []byte) {
		mu.Lock()
		defer mu.Unlock()
		log.Write(p)
	}), nil))})
	w.finding("UnknownField", true)
	time.Sleep(100 * time.Millisecond)
	if n := lines("level=ERROR"); n != 1 {
		t.Errorf("%d errors logged, want one", n)
	}
	w.write("a.yaml", vs("a", "a")+"# mended, and no shorter\n")
	w.finding("UnknownField", false)
	w.expect("a=a")
	if lines("finding is gone") != 1 || lines("level=ERROR") != 1 {
		t.Errorf("log:\n%s", log.String())
	}
}

type writer func([]byte)

func (w writer) Write(p []byte) (int, error) {
	w(p)
	return len(p), nil
}

// Every state that is handed on is one that the directory was in: writers replace both files in turn, the second never
// gets ahead.
func TestHistory(t *testing.T) {
	w := newWorld(t, map[string]string{"a.yaml": vs("a", "v0"), "b.yaml": vs("b", "v0")})
	w.run(Options{})
	for i := 1; i <= 100; i++ {
		for _, name := range []string{"a", "b"} {
			w.write(".tmp", vs(name, fmt.Sprintf("v%d", i)))
			w.must(os.Rename(w.path(".tmp"), w.path(name+".yaml")))
		}
		time.Sleep(3 * time.Millisecond)
	}
	w.expect("a=v100 b=v100")
	last := map[string]int{}
	for _, batch := range w.batches {
		for _, c := range batch {
			var v int
			if _, err := fmt.Sscanf(c.Object.Spec.(*networkingv1.VirtualService).Hosts[0], "v%d", &v); err != nil {
				t.Fatal(err)
			}
			if v < last[c.Name] {
				t.Errorf("%s went back from v%d to v%d", c.Name, last[c.Name], v)
			}
			last[c.Name] = v
		}
	}
}
