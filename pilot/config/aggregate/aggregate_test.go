package aggregate_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/config"
	"github.com/istiod-lite/istiod-lite/pilot/config/aggregate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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

// merge makes a Source of several, the first in precedence first.
func merge(sink config.Handler, names ...string) *aggregate.Source {
	s := aggregate.New(sink)
	for _, name := range names {
		s.Add(name)
	}
	return s
}

func TestPrecedence(t *testing.T) {
	got := newSink(t)
	s := merge(got.take, "directory", "kubernetes")
	file, kube := s.From(0), s.From(1)

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
		Message: "several sources have this object: that of directory (/etc/a:b.yaml:3:1) counts, not that of kubernetes",
	}
	if f := s.Findings(); !slices.Equal(f, []diag.Diagnostic{want}) {
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
	if got.objects[low.Key] != low || len(s.Findings()) > 0 {
		t.Fatalf("what was behind did not come forth: %v, findings %v", got.last, s.Findings())
	}

	// The other way about: the finding points at the one that is hidden.
	file([]kinds.Change{set(object("y", "1", ""))})
	kube([]kinds.Change{set(object("y", "2", "/etc/a:b.yaml:3:7"))})
	if f := s.Findings(); len(f) != 1 || f[0].File != "/etc/a:b.yaml" || f[0].Line != 3 || f[0].Column != 7 {
		t.Errorf("findings %v", f)
	}
}

// An equal object takes over without a change, and the pointer that everybody holds stays.
func TestEqualTakesOver(t *testing.T) {
	got := newSink(t)
	s := merge(got.take, "a", "b")
	one, other := object("x", "same", "f:1:1"), object("x", "same", "g:1:1")
	s.From(0)([]kinds.Change{set(one)})
	s.From(1)([]kinds.Change{set(other)})
	s.From(0)([]kinds.Change{gone(one)})
	if got.calls != 1 || got.objects[one.Key] != one {
		t.Fatalf("%d calls", got.calls)
	}
	s.From(0)([]kinds.Change{set(object("x", "same", "f:2:1"))})
	s.From(0)([]kinds.Change{gone(one)})
	if got.calls != 1 {
		t.Fatalf("handed on %v", got.last)
	}
	s.From(1)([]kinds.Change{gone(other)})
	if got.calls != 2 || len(got.objects) > 0 {
		t.Fatalf("%d calls, %v", got.calls, got.objects)
	}
}

func TestAddedSourceIsAwaited(t *testing.T) {
	got := newSink(t)
	s := merge(got.take, "a", "b")
	x := object("x", "1", "")
	s.From(0)([]kinds.Change{set(x)})
	late := s.Add("late") // before the whole: awaited too
	if a := s.Awaited(); !slices.Equal(a, []string{"b", "late"}) {
		t.Fatalf("awaited %v", a)
	}
	s.From(1)(nil)
	s.From(late)(nil)
	if got.calls != 1 || got.objects[x.Key] != x {
		t.Fatalf("%d calls, %v", got.calls, got.objects)
	}
	later := s.Add("later")
	if len(s.Awaited()) > 0 {
		t.Errorf("awaited %v", s.Awaited())
	}
	s.From(later)(nil)
	if got.calls != 1 {
		t.Error("the empty first call of a source that nobody awaits was handed on")
	}
}

func TestWaitNamesAwaitedSources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := merge(func([]kinds.Change) {}, "directory", "kubernetes")
		ctx, cancel := context.WithCancel(t.Context())
		results := make(chan error, 2)
		for _, ctx := range []context.Context{ctx, t.Context()} {
			go func() { results <- s.Wait(ctx) }()
		}
		s.From(1)(nil)
		cancel()
		synctest.Wait()
		if err := <-results; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "(directory)") {
			t.Errorf("got %v", err)
		}
		s.From(0)(nil)
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
	var s *aggregate.Source
	busy := make(chan struct{}, 1)
	s = merge(func(changes []kinds.Change) {
		select {
		case busy <- struct{}{}:
		default:
			t.Error("two calls at once")
		}
		s.Awaited()
		s.Findings()
		got.take(changes)
		<-busy
	}, "a", "b", "c")
	var wg sync.WaitGroup
	for i := range 3 {
		wg.Go(func() {
			s.From(i)(nil)
			for n := range 200 {
				o := object(fmt.Sprint("x", n%5), fmt.Sprint(i, n), "")
				s.From(i)([]kinds.Change{set(o)})
				if n%3 == i {
					s.From(i)([]kinds.Change{gone(o)})
				}
			}
			for n := range 5 {
				s.From(i)([]kinds.Change{gone(object(fmt.Sprint("x", n), "", ""))})
			}
		})
	}
	wg.Wait()
	if len(got.objects) > 0 || len(s.Findings()) > 0 {
		t.Errorf("left: %v, %v", got.objects, s.Findings())
	}
}

// Any history ends as it does in a model that looks through all sources at every key.
func TestHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 4).Draw(t, "sources")
		got := newSink(t)
		names := []string{"s0", "s1", "s2", "s3"}[:n]
		s := merge(got.take, names...)
		model := make([]map[kinds.Key]*kinds.Object, n)
		awaited := map[int]bool{}
		for i := range model {
			model[i], awaited[i] = map[kinds.Key]*kinds.Object{}, true
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			i := rapid.IntRange(0, len(model)-1).Draw(t, "source")
			switch rapid.SampledFrom([]string{"change", "change", "change", "change", "add"}).Draw(t, "what") {
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
				s.From(i)(changes)
				delete(awaited, i)
			case "add":
				if len(model) < 6 {
					if len(awaited) > 0 {
						awaited[len(model)] = true
					}
					s.Add(fmt.Sprint("s", len(model)))
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
			found := s.Findings()
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
	})
}

func TestUnsharedKeysCostOneMapEntry(t *testing.T) {
	s := merge(func([]kinds.Change) {}, "a", "b")
	s.From(0)(nil)
	s.From(1)(nil)
	changes := make([]kinds.Change, 1000)
	for i := range changes {
		changes[i] = set(object(fmt.Sprint("x", i), "", ""))
	}
	s.From(0)(changes)
	// The slice that is handed on, and the closure: the entries are there.
	if n := testing.AllocsPerRun(10, func() { s.From(0)(changes) }); n > 5 {
		t.Errorf("%v allocations for 1000 changes", n)
	}
}
