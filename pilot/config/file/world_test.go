package file

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/deploy/leaks"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// TestMain lets more tests run at a time than there are processors, for they mostly wait.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	leaks.Main(m)
}

// world is a source that runs on a directory of its own, and what it has handed on.
type world struct {
	t      *testing.T
	dir    string
	source *Source

	mu      sync.Mutex
	objects map[kinds.Key]*kinds.Object
	batches [][]kinds.Change
	told    []string // lines of the log about findings
}

// both runs a test with fsnotify and without.
func both(t *testing.T, test func(t *testing.T, start func(files map[string]string) *world)) {
	t.Parallel()
	for _, noWatch := range []bool{false, true} {
		name := "watch"
		if noWatch {
			name = "poll"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, func(files map[string]string) *world {
				w := newWorld(t, files)
				opts := Options{NoWatch: noWatch}
				if noWatch {
					opts.Poll = 30 * time.Millisecond
				}
				w.run(opts)
				return w
			})
		})
	}
}

func newWorld(t *testing.T, files map[string]string) *world {
	w := &world{t: t, dir: t.TempDir(), objects: map[kinds.Key]*kinds.Object{}}
	for name, text := range files {
		w.write(name, text)
	}
	return w
}

func (w *world) run(opts Options) {
	w.t.Helper()
	opts.Dir, opts.Handler = w.dir, w.handle
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.NewTextHandler(writer(func(line []byte) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if bytes.Contains(line, []byte("finding")) {
				w.told = append(w.told, string(line))
			}
		}), nil))
	}
	source, err := New(opts)
	must.Succeed(w.t, err)
	w.source = source
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- source.Run(ctx) }()
	w.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("Run: %v", err)
		}
	})
	w.eventually("sync", source.HasSynced)
}

func (w *world) handle(changes []kinds.Change) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.batches = append(w.batches, changes)
	for _, c := range changes {
		if c.Object == nil {
			if w.objects[c.Key] == nil {
				w.t.Errorf("%s deleted, but it never was", c.Key)
			}
			delete(w.objects, c.Key)
		} else {
			w.objects[c.Key] = c.Object
		}
	}
}

// write puts a file there as editors do: whole, under its name.
func (w *world) write(name, text string) {
	w.t.Helper()
	path := filepath.Join(w.dir, name)
	w.must(os.MkdirAll(filepath.Dir(path), 0o755))
	next := filepath.Join(w.dir, ".next")
	w.must(os.WriteFile(next, []byte(text), 0o600))
	w.must(os.Rename(next, path))
}

// overwrite writes into a file as a shell does: it is empty, then torn, then whole.
func (w *world) overwrite(name string, pause time.Duration, parts ...string) {
	w.t.Helper()
	f, err := os.OpenFile(filepath.Join(w.dir, name), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	w.must(err)
	for i, part := range parts {
		if i > 0 {
			time.Sleep(pause)
		}
		_, err = f.WriteString(part)
		w.must(err)
	}
	w.must(f.Close())
}

func (w *world) must(err error) {
	w.t.Helper()
	must.Succeed(w.t, err)
}

func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.t.Fatalf("no %s; have %v, findings %v", what, w.summary(), w.told)
		}
	}
}

// summary lists the hosts of all VirtualServices by name. Called with mu held.
func (w *world) summary() string {
	var out []string
	for key, o := range w.objects {
		if vs, ok := o.Spec.(*networkingv1.VirtualService); ok {
			out = append(out, key.Name+"="+strings.Join(vs.Hosts, "+"))
		} else {
			out = append(out, key.String())
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// expect waits until these are the objects.
func (w *world) expect(want string) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("%q", want), func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.summary() == want
	})
}

// stays fails if the objects are, or within a while become, others.
func (w *world) stays(want string, d time.Duration) {
	w.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		w.mu.Lock()
		have := w.summary()
		w.mu.Unlock()
		if have != want {
			w.t.Fatalf("have %q, want %q", have, want)
		}
	}
}

// finding waits for one with that code, or for its absence.
func (w *world) finding(code string, want bool) (found diag.Diagnostic) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("finding %s: %v", code, want), func() bool {
		i := slices.IndexFunc(w.source.Findings(), func(d diag.Diagnostic) bool { return d.Code == code })
		if i >= 0 {
			found = w.source.Findings()[i]
		}
		return i >= 0 == want
	})
	return found
}

func (w *world) batchCount() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.batches)
}

func vs(name, host string) string {
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: VirtualService
metadata:
  name: %s
spec:
  hosts: [%s]
  http:
  - route:
    - destination:
        host: %s
`, name, host, host)
}
