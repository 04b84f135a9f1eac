package file

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/api/diag"
)

// many returns VirtualServices v0, v1 and so on as one file, and how expect names them.
func many(n int, host string) (text, want string) {
	var texts, names []string
	for i := range n {
		name := fmt.Sprintf("v%d", i)
		texts = append(texts, vs(name, host))
		names = append(names, name+"="+host)
	}
	slices.Sort(names)
	return strings.Join(texts, "---\n"), strings.Join(names, " ")
}

func TestReplacedFasterThanAScan(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"a.yaml": vs("a", "first")})
	for i := range 2000 {
		w.must(os.WriteFile(w.path(fmt.Sprintf("filler-%d.yaml", i)), nil, 0o600))
	}
	w.run(Options{})
	before := w.batchCount()
	const last = 300
	for i := range last + 1 {
		w.write("a.yaml", vs("a", fmt.Sprintf("v%d", i)))
		time.Sleep(4 * time.Millisecond)
	}
	if n := w.batchCount() - before; n < 2 {
		t.Errorf("%d updates while it was replaced", n)
	}
	w.expect(fmt.Sprintf("a=v%d", last))
}

func TestWrittenWithoutEnd(t *testing.T) {
	both(t, func(t *testing.T, start func(map[string]string) *world) {
		w := start(map[string]string{"a.yaml": vs("a", "first")})
		before := w.batchCount()
		i := 0
		w.eventually("update", func() bool {
			w.overwrite("a.yaml", 0, vs("a", fmt.Sprintf("v%03d", i)))
			i++
			return w.batchCount() != before
		})
	})
}

// A file that is never finished delays deletions, for its object may be one that is gone, but not for ever.
func TestUnfinishedFileDelaysDeletions(t *testing.T) {
	both(t, func(t *testing.T, start func(map[string]string) *world) {
		w := start(map[string]string{"a.yaml": vs("a", "a"), "b.yaml": vs("b", "b")})
		w.must(os.Remove(w.path("a.yaml")))
		grow, err := os.Create(w.path("c.yaml"))
		w.must(err)
		defer grow.Close()
		w.eventually("deletion", func() bool {
			_, err := grow.WriteString("#")
			w.must(err)
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.summary() == "b=b"
		})
	})
}

// The directory is back before anyone looks, but the watch on it was lost.
func TestDirectoryMovedAwayAndBack(t *testing.T) {
	t.Parallel()
	for dir, file := range map[string]string{"sub": "sub/a.yaml", ".": "a.yaml"} {
		t.Run(dir, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, map[string]string{file: vs("a", "first"), "z.yaml": vs("z", "z")})
			const poll = 4 * time.Second
			w.run(Options{Poll: poll})
			here := w.path(dir)
			away := filepath.Join(filepath.Dir(here), "away-"+filepath.Base(here))
			w.must(os.Rename(here, away))
			w.must(os.Rename(away, here))
			time.Sleep(poll + poll/4) // until it was looked at
			slow := 0
			for i := range 6 {
				began := time.Now()
				next := w.path(file) + "~" // beside it: no other directory shall be stirred
				w.must(os.WriteFile(next, []byte(vs("a", fmt.Sprintf("v%d", i))), 0o600))
				w.must(os.Rename(next, w.path(file)))
				w.expect(fmt.Sprintf("a=v%d z=z", i))
				if time.Since(began) > poll/2 {
					slow++
				}
			}
			if slow > 3 {
				t.Errorf("%d of 6 changes were found by polling only", slow)
			}
		})
	}
}

// The file grows, so that its size does not show that it is torn.
func TestTornFileThatGrows(t *testing.T) {
	both(t, func(t *testing.T, start func(map[string]string) *world) {
		old, want := many(10, "old")
		text, wantNew := many(20, "a-name-that-is-rather-longer")
		objects := strings.SplitAfter(text, "---\n")
		for name, cut := range map[string]int{
			"between documents": len(strings.Join(objects[:9], "")),
			"within a list":     len(strings.Join(objects[:9], "")) + strings.Index(objects[9], "    - destination"),
		} {
			w := start(map[string]string{"a.yaml": old})
			w.expect(want)
			w.overwrite("a.yaml", 300*time.Millisecond, text[:cut], text[cut:])
			w.expect(wantNew)
			if n := w.batchCount(); n != 2 {
				t.Errorf("%s: %d changes, want the first load and one", name, n)
			}
		}
	})
}

func TestOverwrittenIsUsedSoon(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"a.yaml": vs("a", "old")})
	w.run(Options{})
	fast := false
	for i := 0; i < 5 && !fast; i++ {
		began := time.Now()
		w.overwrite("a.yaml", 0, vs("a", fmt.Sprintf("new%d", i)))
		w.expect(fmt.Sprintf("a=new%d", i))
		fast = time.Since(began) < restUnfinished/2
	}
	if !fast {
		t.Error("a file written in place with all its objects is used late")
	}
}

func TestDuplicateDoesNotTakeOver(t *testing.T) {
	both(t, func(t *testing.T, start func(map[string]string) *world) {
		w := start(map[string]string{"m.yaml": vs("a", "live"), "z.yaml": vs("z", "z")})
		w.write("b.yaml", vs("a", "late"))
		d := w.finding("DuplicateObject", true)
		if want := w.path("m.yaml") + ":1:1, which is the one that counts"; d.File != w.path("b.yaml") || !strings.Contains(d.Message, want) || !strings.Contains(d.Fix, "after a restart") {
			t.Errorf("finding %v", d)
		}
		w.stays("a=live z=z", 100*time.Millisecond)
		w.write("m.yaml", vs("a", "edited"))
		w.expect("a=edited z=z")
		w.must(os.Remove(w.path("m.yaml")))
		w.expect("a=late z=z")
		w.finding("DuplicateObject", false)
		for _, batch := range w.batches[1:] {
			if len(batch) != 1 {
				t.Errorf("changes %v", batch)
			}
		}
	})
}

func TestFixSaysWhatIsInForce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"syntax.yaml": "kind: Deployment\na: [\n", "field.yaml": vs("f", "f") + "  htpp: []\n"})
	w.run(Options{})
	check := func(code, want string) {
		t.Helper()
		w.eventually(code+" "+want, func() bool {
			return slices.ContainsFunc(w.source.Findings(), func(d diag.Diagnostic) bool { return d.Code == code && strings.Contains(d.Fix, want) })
		})
	}
	check("Syntax", "nothing in the file is used")
	check("UnknownField", "until it is mended, the rest of the object is in force")
	w.write("syntax.yaml", vs("s", "s"))
	w.write("field.yaml", vs("f", "f"))
	w.expect("f=f s=s")
	w.write("syntax.yaml", vs("s", "s")+"a: [\n")
	w.write("field.yaml", vs("f", "f")+"  htpp: []\n")
	check("Syntax", "the file's last good content stays in force")
	check("UnknownField", "until it is mended, its last good version stays in force")
}

func TestRefusalTellsAllFindings(t *testing.T) {
	t.Parallel()
	policy := "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: deny-all}\nspec:\n  ruls: []\n"
	w := newWorld(t, map[string]string{"field.yaml": vs("f", "f") + "  htpp: []\n", "policy.yaml": policy})
	source, err := New(Options{Dir: w.dir, Handler: w.handle})
	w.must(err)
	if err := source.Run(context.Background()); err == nil {
		t.Error("Run did not fail")
	}
	var files []string
	for _, d := range source.Findings() {
		files = append(files, filepath.Base(d.File))
	}
	if !slices.Equal(files, []string{"field.yaml", "policy.yaml"}) || w.batchCount() > 0 {
		t.Errorf("findings of %v, %d batches", files, w.batchCount())
	}
}

// TestWrittenFromTheStart waits with the first load for a file that is being written, says so, and takes the file once
// it is whole.
func TestWrittenFromTheStart(t *testing.T) {
	w := newWorld(t, map[string]string{"a.yaml": vs("a", "v1")})
	growing := w.path("b.yaml")
	w.must(os.WriteFile(growing, []byte(`{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: b, annotations: {note: "`), 0o600))
	stop, stopped := make(chan struct{}), make(chan struct{})
	finish := sync.OnceFunc(func() { close(stop); <-stopped })
	t.Cleanup(finish)
	go func() {
		defer close(stopped)
		for {
			f, err := os.OpenFile(growing, os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				t.Error(err)
				return
			}
			text := "."
			select {
			case <-stop:
				text = "\"}}, spec: {hosts: [v1], http: [{route: [{destination: {host: v1}}]}]}}\n"
			case <-time.After(5 * time.Millisecond):
			}
			_, err = f.WriteString(text)
			if err = errors.Join(err, f.Close()); err != nil {
				t.Error(err)
			}
			if text != "." {
				return
			}
		}
	}()
	told := func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return slices.ContainsFunc(w.told, func(line string) bool { return strings.Contains(line, "is being written") })
	}
	began := make(chan struct{})
	go func() {
		defer close(began)
		for !told() && t.Context().Err() == nil {
			time.Sleep(10 * time.Millisecond)
		}
		if w.batchCount() > 0 {
			t.Error("the source began without the file")
		}
		finish()
	}()
	w.run(Options{})
	<-began
	w.expect("a=v1 b=v1")
	w.finding("Unreadable", false)
}
