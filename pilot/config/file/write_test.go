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
	"github.com/istiod-lite/istiod-lite/api/watchfile"
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
	before, last := w.batchCount(), 0
	w.eventually("two updates while it is replaced", func() bool { // which is more often than that of eventually
		for range 2 {
			last++
			w.write("a.yaml", vs("a", fmt.Sprintf("v%d", last)))
			time.Sleep(time.Millisecond)
		}
		return w.batchCount() >= before+2
	})
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
			// A change that follows one that was found by polling takes all of poll, if it is found by polling too.
			fast, i := 0, 0
			w.eventually("two changes in turn are found without polling", func() bool {
				i++
				next := w.path(file) + "~" // beside it: no other directory shall be stirred
				w.must(os.WriteFile(next, []byte(vs("a", fmt.Sprintf("v%d", i))), 0o600))
				began := time.Now()
				w.must(os.Rename(next, w.path(file)))
				w.expect(fmt.Sprintf("a=v%d z=z", i))
				if fast++; time.Since(began) > poll/2 {
					fast = 0
				}
				return fast == 2
			})
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
			w.eventually(name+": the file is whole in time", func() bool {
				w.expect(want)
				before, began := w.batchCount(), time.Now()
				w.overwrite("a.yaml", 300*time.Millisecond, text[:cut], text[cut:])
				inTime := time.Since(began) < restUnfinished // else the machine is too busy, and the torn file may be used
				w.expect(wantNew)
				if n := w.batchCount() - before; inTime && n != 1 {
					t.Errorf("%s: %d changes, want one", name, n)
				}
				if !inTime {
					w.write("a.yaml", old)
				}
				return inTime
			})
		}
	})
}

func TestOverwrittenIsUsedSoon(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"a.yaml": vs("a", "old")})
	w.run(Options{})
	i := 0
	w.eventually("a file written in place with all its objects is used soon", func() bool {
		i++
		began := time.Now()
		w.overwrite("a.yaml", 0, vs("a", fmt.Sprintf("new%d", i)))
		w.expect(fmt.Sprintf("a=new%d", i))
		return time.Since(began) < restUnfinished/2
	})
}

func TestDuplicateDoesNotTakeOver(t *testing.T) {
	both(t, func(t *testing.T, start func(map[string]string) *world) {
		w := start(map[string]string{"m.yaml": vs("a", "live"), "z.yaml": vs("z", "z")})
		w.write("b.yaml", vs("a", "late"))
		d := w.finding("DuplicateObject", true)
		if want := w.path("m.yaml") + ":1:1, which is in force"; d.File != w.path("b.yaml") || !strings.Contains(d.Message, want) ||
			!strings.Contains(d.Fix, "a server does not start with both") {
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
	w.must(os.WriteFile(
		growing, []byte(`{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: b, annotations: {note: "`), 0o600,
	))
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

// TestSlowReadIsNoRest: the time that it takes to look at a file is no time for which the file has rested.
func TestSlowReadIsNoRest(t *testing.T) {
	c := &content{readAt: time.Now()}
	torn := watchfile.Stamp{Modified: time.Now()}
	wait := func(began time.Time) time.Duration {
		return c.wait(began, torn, torn, []byte("a: ["), func() reading { return reading{} })
	}
	if left := wait(time.Now().Add(-time.Second)); left < restUnfinished {
		t.Errorf("a file is read in %s", left)
	}
	if wait(c.doubtFirst.Add(time.Second)) == 0 {
		t.Error("a file that looks unfinished is read, although it was first seen just now")
	}
}
