package translate

import (
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/pilot/translate/view"
)

// TestMemoKeysHoldNoSnapshot: a memo key that held a Snapshot would never be equal to a later one, and would keep the
// Snapshot alive.
func TestMemoKeysHoldNoSnapshot(t *testing.T) {
	worlds := map[reflect.Type]bool{}
	for _, v := range []any{snapshot.Snapshot{}, scope.Index{}, scope.Scope{}, view.View{}, Translator{}} {
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
			if typ != reflect.TypeFor[kinds.Extra]() {
				return "an interface"
			}
			for _, extra := range []any{kinds.GatewayExtra{}, kinds.RouteExtra{}, kinds.RuleExtra{}} {
				if h := holds(reflect.TypeOf(extra), seen); h != "" {
					return h
				}
			}
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
	if holds(reflect.TypeOf(struct{ x []*view.View }{}), map[reflect.Type]bool{}) == "" {
		t.Fatal("the test does not see a view")
	}
	tables := 0
	all := map[string]any{"patches": New(Options{}).patch}
	for typeURL, p := range New(Options{}).types {
		all[typeURL] = p
	}
	for typeURL, p := range all {
		provider := reflect.TypeOf(p).Elem()
		for i := range provider.NumField() {
			f := provider.Field(i)
			if !strings.HasPrefix(f.Type.String(), "*envoy.MemoTable[") {
				continue
			}
			tables++
			get, _ := f.Type.MethodByName("Get")
			if h := holds(get.Type.In(1), map[reflect.Type]bool{}); h != "" {
				t.Errorf("%s: the key of table %s holds %s", typeURL, f.Name, h)
			}
		}
	}
	if tables < 12 {
		t.Errorf("%d tables", tables)
	}
}
