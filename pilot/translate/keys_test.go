package translate

import (
	"reflect"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
)

// TestMemoKeysHoldNoSnapshot: a memo key that held a Snapshot would never be equal to a later one, and would keep the
// Snapshot alive.
func TestMemoKeysHoldNoSnapshot(t *testing.T) {
	worlds := map[reflect.Type]bool{}
	for _, v := range []any{snapshot.Snapshot{}, scope.Index{}, scope.Scope{}, view{}, Translator{}} {
		worlds[reflect.TypeOf(v)] = true
	}
	var holds func(typ reflect.Type, seen map[reflect.Type]bool) string
	holds = func(typ reflect.Type, seen map[reflect.Type]bool) string {
		if worlds[typ] {
			return typ.String()
		}
		if seen[typ] || typ == reflect.TypeFor[envoy.Set]() || reflect.PointerTo(typ).Implements(reflect.TypeFor[proto.Message]()) {
			return "" // a Set is its resources; a message is frozen, a part of an Object's Spec
		}
		seen[typ] = true
		switch typ.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map, reflect.Chan:
			return holds(typ.Elem(), seen)
		case reflect.Func:
			return "a function"
		case reflect.Interface:
			return "an interface"
		case reflect.Struct:
			if strings.HasPrefix(typ.PkgPath(), "github.com/istiod-lite/istiod-lite/api/mesh") || strings.HasPrefix(typ.PkgPath(), "time") {
				return ""
			}
			for i := range typ.NumField() {
				f := typ.Field(i)
				if f.Name == "Spec" || f.Name == "Kind" { // of an Object: frozen, whatever it is
					continue
				}
				if h := holds(f.Type, seen); h != "" {
					return f.Name + ": " + h
				}
			}
		}
		return ""
	}
	if holds(reflect.TypeOf(struct{ x []*view }{}), map[reflect.Type]bool{}) == "" {
		t.Fatal("the test does not see a view")
	}
	tables := 0
	translator := reflect.TypeOf(Translator{})
	for i := range translator.NumField() {
		f := translator.Field(i)
		if !strings.HasPrefix(f.Type.String(), "*envoy.Table[") {
			continue
		}
		tables++
		get, _ := f.Type.MethodByName("Get")
		if h := holds(get.Type.In(1), map[reflect.Type]bool{}); h != "" {
			t.Errorf("the key of table %s holds %s", f.Name, h)
		}
	}
	if tables < 10 {
		t.Errorf("%d tables", tables)
	}
}

func cachedSetOf(v *view, key setKey, r generator[struct{}]) *version {
	return cachedSet(v, key, func() generator[struct{}] { return r })
}

// TestPanicIsNotCached: a Set whose generator panics is not cached as an empty one.
func TestPanicIsNotCached(t *testing.T) {
	v := &view{Index: &scope.Index{Snapshot: &snapshot.Snapshot{Revision: 1}}, t: New(Options{})}
	for range 2 {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			cachedSetOf(v, setKey{typeURL: envoy.ClusterType}, singlePartition(func(*view) []*envoy.Resource { panic("broken") }, anyChange))
		}()
	}
	if set := cachedSetOf(v, setKey{typeURL: envoy.ClusterType}, singlePartition(func(*view) []*envoy.Resource { return []*envoy.Resource{{Name: "a"}} }, anyChange)); set.set.Len() != 1 {
		t.Error("it stays broken")
	}
}

func TestSetIsGeneratedOnce(t *testing.T) {
	v := &view{Index: &scope.Index{Snapshot: &snapshot.Snapshot{Revision: 1}}, t: New(Options{})}
	made := 0
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			cachedSetOf(v, setKey{typeURL: envoy.ClusterType}, singlePartition(func(*view) []*envoy.Resource {
				made++
				return nil
			}, anyChange))
			v.t.Count(DuplicateDomain)
		})
	}
	wg.Wait()
	if made != 1 {
		t.Errorf("made %d times", made)
	}
}

// TestRevertedSetKeepsItsHistory: a Set that is again what it was at first may have differed in between.
func TestRevertedSetKeepsItsHistory(t *testing.T) {
	a, b := &envoy.Resource{Name: "a", Version: "1"}, &envoy.Resource{Name: "a", Version: "2"}
	tr, is := New(Options{}), []*envoy.Resource{1: a, 2: b, 3: a}
	for i := range uint64(len(is)) {
		tr.history.record(i, &scope.Dirty{Hosts: []string{"a"}})
	}
	for _, revision := range []uint64{1, 3, 2} {
		v := &view{Index: &scope.Index{Snapshot: &snapshot.Snapshot{Revision: revision}}, t: tr}
		set := cachedSetOf(v, setKey{typeURL: envoy.ClusterType}, singlePartition(func(v *view) []*envoy.Resource { return is[v.Revision : v.Revision+1] }, anyChange)).set
		if got := set.Get("a"); got != is[revision] {
			t.Errorf("at revision %d it is %+v, want %+v", revision, got, is[revision])
		}
	}
}

// TestUnusedSetsAreEvicted: a Set stays cached while it is used with every change, and is evicted some time after its
// last use.
func TestUnusedSetsAreEvicted(t *testing.T) {
	tr := New(Options{})
	some := singlePartition(func(*view) []*envoy.Resource { return nil }, anyChange)
	used, unused := setKey{typeURL: envoy.ClusterType}, setKey{typeURL: envoy.ListenerType}
	for i := uint64(1); i < 4*maxUnused; i++ {
		v := &view{Index: &scope.Index{Snapshot: &snapshot.Snapshot{Revision: i}}, t: tr}
		changes := &scope.Dirty{Hosts: []string{"a"}}
		tr.history.record(i, changes)
		tr.sets.advance(i)
		cachedSetOf(v, used, some)
		if i == 1 {
			cachedSetOf(v, unused, some)
		}
	}
	if _, ok := tr.sets.entries[used]; !ok || len(tr.sets.entries) != 1 || len(tr.history.changes) > maxChanges {
		t.Errorf("%d Sets are cached, %d changes", len(tr.sets.entries), len(tr.history.changes))
	}
}
