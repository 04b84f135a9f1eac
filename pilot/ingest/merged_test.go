package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/catalog"
	"github.com/istiod-lite/istiod-lite/pilot/config"
)

func object(name, value, position string) *kinds.Object {
	return &kinds.Object{
		Key: kinds.Key{Kind: kinds.ConfigMap, Namespace: "a", Name: name}, Position: position,
		Spec: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "a"}, Data: map[string]string{"v": value}},
	}
}

func set(o *kinds.Object) kinds.Change { return kinds.Change{Key: o.Key, Object: o} }

func gone(o *kinds.Object) kinds.Change { return kinds.Change{Key: o.Key} }

// sink follows what it is handed, and checks that it is what a handler is promised.
type sink struct {
	t       interface{ Fatalf(string, ...any) }
	calls   int
	last    []kinds.Change
	objects map[kinds.Key]*kinds.Object
}

func (s *sink) take(changes []kinds.Change) {
	s.calls++
	s.last = changes
	if len(changes) == 0 && s.calls > 1 {
		s.t.Fatalf("an empty call")
	}
	sorted := slices.Clone(changes)
	if config.Sort(sorted); !slices.Equal(sorted, changes) {
		s.t.Fatalf("changes are not in order: %v", changes)
	}
	seen := map[kinds.Key]bool{}
	for _, c := range changes {
		old := s.objects[c.Key]
		switch {
		case seen[c.Key]:
			s.t.Fatalf("%v twice", c.Key)
		case c.Object == nil && old == nil:
			s.t.Fatalf("%v is deleted but was not there", c.Key)
		case c.Object == nil:
			delete(s.objects, c.Key)
		case old != nil && config.Equal(old, c.Object):
			s.t.Fatalf("%v changes nothing", c.Key)
		default:
			s.objects[c.Key] = c.Object
		}
		seen[c.Key] = true
	}
}

func newSink(t interface{ Fatalf(string, ...any) }) *sink {
	return &sink{t: t, objects: map[kinds.Key]*kinds.Object{}}
}

// merge makes Sources of several names, the first in precedence first, and returns their handlers too.
func merge(sink config.Handler, names ...string) (*Sources, []config.Handler) {
	o := Options{Logger: slog.New(slog.DiscardHandler)}
	s := newSources(o, New(o, Parts{Catalog: catalog.Features()}), sink)
	from := make([]config.Handler, len(names))
	for i, name := range names {
		from[i] = s.add(name)
	}
	return s, from
}

func TestPrecedenceOfSources(t *testing.T) {
	got := newSink(t)
	s, from := merge(got.take, "directory", "kubernetes")
	file, kube := from[0], from[1]

	low := object("x", "low", "")
	kube([]kinds.Change{set(low)})
	if got.calls != 0 || s.HasSynced() || !slices.Equal(s.Awaited(), []string{"directory"}) {
		t.Fatalf("%d calls, awaited %v", got.calls, s.Awaited())
	}
	file(nil)
	if got.calls != 1 || !s.HasSynced() || len(s.Awaited()) > 0 || got.objects[low.Key] != low {
		t.Fatalf("%d calls, %v", got.calls, got.objects)
	}

	high := object("x", "high", "/etc/a:b.yaml:3:1")
	file([]kinds.Change{set(high)})
	if got.objects[low.Key] != high {
		t.Fatal("the first in precedence does not count")
	}
	want := diag.Diagnostic{
		Severity: diag.Warning, Code: "DuplicateObject", Object: "ConfigMap a/x", Fix: "keep it in one of them",
		Message: "several sources have this object: the one from directory (/etc/a:b.yaml:3:1) is in force, not the one from kubernetes",
	}
	if f := s.duplicates(""); !slices.Equal(f, []diag.Diagnostic{want}) {
		t.Fatalf("findings %v", f)
	}

	calls := got.calls
	kube([]kinds.Change{set(object("x", "low2", ""))})
	low = object("x", "low3", "")
	kube([]kinds.Change{set(low)})
	if got.calls != calls {
		t.Fatal("a change behind the object that counts was handed on")
	}
	file([]kinds.Change{gone(high)})
	if got.objects[low.Key] != low || len(s.duplicates("")) > 0 {
		t.Fatalf("what was behind did not come forth: %v, findings %v", got.last, s.duplicates(""))
	}

	// The other way about: the finding points at the one that is hidden.
	file([]kinds.Change{set(object("y", "1", ""))})
	kube([]kinds.Change{set(object("y", "2", "/etc/a:b.yaml:3:7"))})
	if f := s.duplicates(""); len(f) != 1 || f[0].File != "/etc/a:b.yaml" || f[0].Line != 3 || f[0].Column != 7 {
		t.Errorf("findings %v", f)
	}
}

// An equal object takes over without a change, and the pointer that everybody holds stays.
func TestEqualTakesOver(t *testing.T) {
	got := newSink(t)
	_, from := merge(got.take, "a", "b")
	one, other := object("x", "same", "f:1:1"), object("x", "same", "g:1:1")
	from[0]([]kinds.Change{set(one)})
	from[1]([]kinds.Change{set(other)})
	from[0]([]kinds.Change{gone(one)})
	if got.calls != 1 || got.objects[one.Key] != one {
		t.Fatalf("%d calls", got.calls)
	}
	from[0]([]kinds.Change{set(object("x", "same", "f:2:1"))})
	from[0]([]kinds.Change{gone(one)})
	if got.calls != 1 {
		t.Fatalf("handed on %v", got.last)
	}
	from[1]([]kinds.Change{gone(other)})
	if got.calls != 2 || len(got.objects) > 0 {
		t.Fatalf("%d calls, %v", got.calls, got.objects)
	}
}

func TestAddedSourceIsAwaited(t *testing.T) {
	got := newSink(t)
	s, from := merge(got.take, "a", "b")
	x := object("x", "1", "")
	from[0]([]kinds.Change{set(x)})
	late := s.add("late") // before the whole: awaited too
	if a := s.Awaited(); !slices.Equal(a, []string{"b", "late"}) {
		t.Fatalf("awaited %v", a)
	}
	from[1](nil)
	late(nil)
	if got.calls != 1 || got.objects[x.Key] != x {
		t.Fatalf("%d calls, %v", got.calls, got.objects)
	}
	later := s.add("later")
	if len(s.Awaited()) > 0 {
		t.Errorf("awaited %v", s.Awaited())
	}
	later(nil)
	if got.calls != 1 {
		t.Error("the empty first call of a source that nobody awaits was handed on")
	}
}

// TestOfFirst: what a source has that is added later does not count for those that are awaited first, and is reported
// as a duplicate unless it is left out.
func TestOfFirst(t *testing.T) {
	s, from := merge(newSink(t).take, "files")
	s.whenHeard(func() {})
	later, latest := s.add("later"), s.add("latest")
	x, y := object("x", "1", ""), object("y", "1", "")
	from[0]([]kinds.Change{set(x)})
	later([]kinds.Change{set(object("x", "2", "")), set(y)})
	latest([]kinds.Change{set(object("y", "2", ""))})
	if s.ofFirst(x.Key) != x || s.ofFirst(y.Key) != nil || s.ofFirst(object("z", "", "").Key) != nil {
		t.Errorf("%v, %v", s.ofFirst(x.Key), s.ofFirst(y.Key))
	}
	for except, want := range map[string]string{
		"": "ConfigMap a/x ConfigMap a/y", "later": "", "latest": "ConfigMap a/x", "files": "ConfigMap a/y",
	} {
		var got []string
		for _, d := range s.duplicates(except) {
			got = append(got, d.Object)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("without %q: %q, want %q", except, got, want)
		}
	}
}

// TestWhenHeard: what the first sources bring decides which others there are, and nothing is handed on before all were
// heard.
func TestWhenHeard(t *testing.T) {
	got := newSink(t)
	s, from := merge(got.take, "files", "cluster")
	var named config.Handler
	x := object("x", "1", "")
	s.whenHeard(func() {
		if named != nil || s.ofFirst(x.Key) != x || got.calls > 0 {
			t.Errorf("asked for sources after %d calls, with %v", got.calls, s.ofFirst(x.Key))
		}
		named = s.add("named")
	})
	services := s.add("services")
	from[0]([]kinds.Change{set(x)})
	services(nil)
	if a := s.Awaited(); named != nil || !slices.Equal(a, []string{"cluster"}) {
		t.Fatalf("awaited %v, a source was added: %v", a, named != nil)
	}
	from[1](nil)
	if a := s.Awaited(); got.calls != 0 || !slices.Equal(a, []string{"named"}) {
		t.Fatalf("awaited %v after %d calls", a, got.calls)
	}
	named([]kinds.Change{set(object("x", "2", "")), set(object("y", "1", ""))})
	from[0]([]kinds.Change{gone(x)})
	if got.calls != 2 || len(got.objects) != 2 || !s.HasSynced() {
		t.Errorf("%d calls: %v", got.calls, got.objects)
	}
}

func TestWaitNamesAwaitedSources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, from := merge(func([]kinds.Change) {}, "directory", "kubernetes")
		ctx, cancel := context.WithCancel(t.Context())
		results := make(chan error, 2)
		for _, ctx := range []context.Context{ctx, t.Context()} {
			go func() { results <- s.Wait(ctx) }()
		}
		from[1](nil)
		cancel()
		synctest.Wait()
		if err := <-results; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "(directory)") {
			t.Errorf("got %v", err)
		}
		from[0](nil)
		if err := <-results; err != nil {
			t.Error(err)
		}
		if err := s.Wait(ctx); err != nil {
			t.Errorf("whole, but %v", err)
		}
	})
}

// Calls of several sources at once reach the sink one at a time, and the sink may ask.
func TestConcurrentSources(t *testing.T) {
	got := newSink(t)
	var s *Sources
	var from []config.Handler
	busy := make(chan struct{}, 1)
	s, from = merge(func(changes []kinds.Change) {
		select {
		case busy <- struct{}{}:
		default:
			t.Error("two calls at once")
		}
		s.Awaited()
		s.duplicates("")
		got.take(changes)
		<-busy
	}, "a", "b", "c")
	var wg sync.WaitGroup
	for i := range 3 {
		wg.Go(func() {
			from[i](nil)
			for n := range 200 {
				o := object(fmt.Sprint("x", n%5), fmt.Sprint(i, n), "")
				from[i]([]kinds.Change{set(o)})
				if n%3 == i {
					from[i]([]kinds.Change{gone(o)})
				}
			}
			for n := range 5 {
				from[i]([]kinds.Change{gone(object(fmt.Sprint("x", n), "", ""))})
			}
		})
	}
	wg.Wait()
	if len(got.objects) > 0 || len(s.duplicates("")) > 0 {
		t.Errorf("left: %v, %v", got.objects, s.duplicates(""))
	}
}

// Any history ends as it does in a model that looks through all sources at every key. Commits come later than changes,
// with the last change of each key.
func TestHistoriesOfSources(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 4).Draw(t, "sources")
		got := newSink(t)
		names := []string{"s0", "s1", "s2", "s3"}[:n]
		var world *World
		var waiting, begun group // begun is the commit under way, while changes wait for the next
		committed := map[kinds.Key]*kinds.Object{}
		commit := func() {
			world.Commit(begun.changes, time.Time{})
			for _, c := range begun.changes {
				if committed[c.Key] = c.Object; c.Object == nil {
					delete(committed, c.Key)
				}
			}
			begun, waiting = waiting, group{}
			if all := world.AllObjects(); !maps.Equal(all, committed) {
				t.Fatalf("in force %v, want %v", all, committed)
			}
		}
		s, from := merge(func(changes []kinds.Change) {
			got.take(changes)
			waiting.fill(changes)
			if got.calls == 1 { // the first load does not wait
				begun, waiting = waiting, group{}
				commit()
			}
		}, names...)
		world = s.world
		model := make([]map[kinds.Key]*kinds.Object, n)
		awaited := map[int]bool{}
		for i := range model {
			model[i], awaited[i] = map[kinds.Key]*kinds.Object{}, true
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			i := rapid.IntRange(0, len(model)-1).Draw(t, "source")
			switch rapid.SampledFrom([]string{"change", "change", "change", "change", "add", "commit"}).Draw(t, "what") {
			case "change":
				var changes []kinds.Change
				for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"x", "y", "z"}), 0, 3, rapid.ID).Draw(t, "names") {
					o := object(name, rapid.SampledFrom([]string{"1", "2"}).Draw(t, "value"), "")
					old := model[i][o.Key]
					switch {
					case old == nil:
						model[i][o.Key] = o
						changes = append(changes, set(o))
					case config.Equal(old, o): // a source hands on what has changed
						delete(model[i], o.Key)
						changes = append(changes, gone(o))
					default:
						model[i][o.Key] = o
						changes = append(changes, set(o))
					}
				}
				config.Sort(changes)
				from[i](changes)
				delete(awaited, i)
			case "commit":
				if got.calls > 0 {
					commit()
				}
			case "add":
				if len(model) < 6 {
					if len(awaited) > 0 {
						awaited[len(model)] = true
					}
					from = append(from, s.add(fmt.Sprint("s", len(model))))
					model = append(model, map[kinds.Key]*kinds.Object{})
				}
			}
			if len(s.Awaited()) != len(awaited) || (got.calls > 0) != (len(awaited) == 0) || s.HasSynced() != (len(awaited) == 0) {
				t.Fatalf("awaited %v and %v, %d calls", s.Awaited(), awaited, got.calls)
			}
			want, duplicates := map[kinds.Key]*kinds.Object{}, map[string]bool{}
			for _, m := range slices.Backward(model) {
				for key, o := range m {
					if want[key] != nil {
						duplicates[key.String()] = true
					}
					want[key] = o
				}
			}
			found := s.duplicates("")
			if len(found) != len(duplicates) || slices.ContainsFunc(found, func(d diag.Diagnostic) bool { return !duplicates[d.Object] }) {
				t.Fatalf("findings %v, want of %v", found, duplicates)
			}
			if got.calls == 0 {
				continue
			}
			if len(got.objects) != len(want) {
				t.Fatalf("got %v, want %v", got.objects, want)
			}
			for key, o := range want {
				if got.objects[key] == nil || !config.Equal(got.objects[key], o) {
					t.Fatalf("%v: got %v, want %v", key, got.objects[key], o)
				}
			}
		}
		if got.calls == 0 {
			return
		}
		commit()
		commit()
		if !maps.Equal(committed, got.objects) {
			t.Fatalf("committed %v, want %v", committed, got.objects)
		}
		if len(world.pending) > len(world.objects) {
			t.Fatalf("%d changes are pending beside %d objects", len(world.pending), len(world.objects))
		}
	})
}

func TestUnsharedKeysCostOneMapEntry(t *testing.T) {
	_, from := merge(func([]kinds.Change) {}, "a", "b")
	from[0](nil)
	from[1](nil)
	changes := make([]kinds.Change, 1000)
	for i := range changes {
		changes[i] = set(object(fmt.Sprint("x", i), "", ""))
	}
	from[0](changes)
	// The slice that is handed on, and the closure: the entries are there.
	if n := testing.AllocsPerRun(10, func() { from[0](changes) }); n > 5 {
		t.Errorf("%v allocations for 1000 changes", n)
	}
}
