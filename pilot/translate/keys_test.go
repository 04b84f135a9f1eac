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

// TestKeys: a memo key that held a whole Snapshot would be equal to none of the next, and would keep the world alive.
func TestKeys(t *testing.T) {
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

func keepOne(v *view, key setKey, r recipe[struct{}]) *version {
	return keep(v, key, func() recipe[struct{}] { return r })
}

// TestSetThatPanics: nobody takes a Set that could not be made for one without resources.
func TestSetThatPanics(t *testing.T) {
	v := &view{Index: &scope.Index{Snapshot: &snapshot.Snapshot{Revision: 1}}, t: New(Options{})}
	for range 2 {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			keepOne(v, setKey{typeURL: envoy.ClusterType}, coarse(func(*view) []*envoy.Resource { panic("broken") }, anything))
		}()
	}
	if set := keepOne(v, setKey{typeURL: envoy.ClusterType}, coarse(func(*view) []*envoy.Resource { return []*envoy.Resource{{Name: "a"}} }, anything)); set.set.Len() != 1 {
		t.Error("it stays broken")
	}
}

func TestSetIsMadeOnce(t *testing.T) {
	v := &view{Index: &scope.Index{Snapshot: &snapshot.Snapshot{Revision: 1}}, t: New(Options{})}
	made := 0
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			keepOne(v, setKey{typeURL: envoy.ClusterType}, coarse(func(*view) []*envoy.Resource {
				made++
				return nil
			}, anything))
			v.t.Count(DuplicateDomain)
		})
	}
	wg.Wait()
	if made != 1 {
		t.Errorf("made %d times", made)
	}
}

// TestSetThatCameBack: a Set that is at last what it was at first need not have been so in between.
func TestSetThatCameBack(t *testing.T) {
	a, b := &envoy.Resource{Name: "a", Version: "1"}, &envoy.Resource{Name: "a", Version: "2"}
	tr, is := New(Options{}), []*envoy.Resource{1: a, 2: b, 3: a}
	for i := range uint64(len(is)) {
		tr.history.note(i, &scope.Dirty{Hosts: []string{"a"}})
	}
	for _, revision := range []uint64{1, 3, 2} {
		v := &view{Index: &scope.Index{Snapshot: &snapshot.Snapshot{Revision: revision}}, t: tr}
		set := keepOne(v, setKey{typeURL: envoy.ClusterType}, coarse(func(v *view) []*envoy.Resource { return is[v.Revision : v.Revision+1] }, anything)).set
		if got := set.Get("a"); got != is[revision] {
			t.Errorf("at revision %d it is %+v, want %+v", revision, got, is[revision])
		}
	}
}

// TestUnusedSetsAreForgotten: a Set stays while somebody asks for it at every change, and not for long after.
func TestUnusedSetsAreForgotten(t *testing.T) {
	tr := New(Options{})
	some := coarse(func(*view) []*envoy.Resource { return nil }, anything)
	used, unused := setKey{typeURL: envoy.ClusterType}, setKey{typeURL: envoy.ListenerType}
	for i := uint64(1); i < 4*keptUnused; i++ {
		v := &view{Index: &scope.Index{Snapshot: &snapshot.Snapshot{Revision: i}}, t: tr}
		changes := &scope.Dirty{Hosts: []string{"a"}}
		tr.history.note(i, changes)
		tr.kept.note(i)
		keepOne(v, used, some)
		if i == 1 {
			keepOne(v, unused, some)
		}
	}
	if _, ok := tr.kept.made[used]; !ok || len(tr.kept.made) != 1 || len(tr.history.list) > keptChanges {
		t.Errorf("%d Sets are kept, %d changes", len(tr.kept.made), len(tr.history.list))
	}
}
