package registry

import (
	"reflect"
	"testing"
	"time"
)

// TestEqualComparesEveryField also covers fields that are added later.
func TestEqualComparesEveryField(t *testing.T) {
	checkEqual(t, func(a, b *Service) bool { return a.Equal(b) })
	checkEqual(t, func(a, b *Endpoint) bool { return a.Equal(b) })
	checkEqual(t, func(a, b *Workload) bool { return a.Equal(b) })
}

func checkEqual[T any](t *testing.T, equal func(a, b *T) bool) {
	t.Helper()
	typ := reflect.TypeFor[T]()
	if !equal(new(T), new(T)) || !equal(nil, nil) || equal(nil, new(T)) || equal(new(T), nil) {
		t.Errorf("%v: two of no content are not equal, or one equals none", typ)
	}
	for i := range typ.NumField() {
		if !typ.Field(i).IsExported() { // derived from other fields
			continue
		}
		v := new(T)
		set(t, reflect.ValueOf(v).Elem().Field(i))
		if equal(v, new(T)) || !equal(v, v) {
			t.Errorf("%v: Equal does not look at %s", typ, typ.Field(i).Name)
		}
	}
}

func set(t *testing.T, v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int:
		v.SetInt(1)
	case reflect.Uint32:
		v.SetUint(1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.Zero(v.Type().Key()), reflect.Zero(v.Type().Elem()))
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Unix(1, 0)))
			return
		}
		set(t, v.Field(v.NumField()-1))
	default:
		t.Fatalf("no value for a %v", v.Type())
	}
}

func TestReuseEndpoints(t *testing.T) {
	a, b, c := &Endpoint{Address: "1"}, &Endpoint{Address: "2"}, &Endpoint{Address: "2", Weight: 2}
	again := func(e *Endpoint) *Endpoint { n := *e; return &n }
	for _, x := range []struct {
		name            string
		old, next, want []*Endpoint
		same            bool
	}{
		{"none", nil, nil, nil, true},
		{"equal content", []*Endpoint{a, b}, []*Endpoint{again(a), again(b)}, []*Endpoint{a, b}, true},
		{"repeated", []*Endpoint{a, a}, []*Endpoint{again(a), again(a)}, []*Endpoint{a, a}, true},
		{"one more of the same", []*Endpoint{a}, []*Endpoint{again(a), again(a)}, []*Endpoint{a, a}, false},
		{"another order of what compares equal", []*Endpoint{b, c}, []*Endpoint{again(c), again(b)}, []*Endpoint{c, b}, false},
		{"one gone", []*Endpoint{a, b}, []*Endpoint{again(b)}, []*Endpoint{b}, false},
		{"one less", []*Endpoint{a, b}, []*Endpoint{again(a)}, []*Endpoint{a}, false},
		{"all gone", []*Endpoint{a}, nil, nil, false},
	} {
		got, same := ReuseEndpoints(x.old, x.next)
		if same != x.same || len(got) != len(x.want) {
			t.Errorf("%s: %d endpoints, same %v", x.name, len(got), same)
			continue
		}
		for i := range got {
			if got[i] != x.want[i] {
				t.Errorf("%s: endpoint %d is another pointer", x.name, i)
			}
		}
	}
}
