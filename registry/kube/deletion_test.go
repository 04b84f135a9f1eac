package kube

import (
	"reflect"
	"testing"

	"github.com/istiod-lite/istiod-lite/registry/internal/world"
)

// TestDeletionLeavesNothing checks that deleting all objects empties every table of the registry.
func TestDeletionLeavesNothing(t *testing.T) {
	for _, path := range []string{"testdata/world.yaml", "testdata/versions.yaml"} {
		changes := world.ParseFile(t, path)
		r := New(Options{})
		for i := range changes { // one by one, so that each version of an object exists for a while
			r.Apply(changes[i : i+1])
		}
		r.Apply(world.Delete(changes))
		v := reflect.ValueOf(r).Elem()
		for i := range v.NumField() {
			switch f := v.Field(i); {
			case f.Kind() == reflect.Map && f.Len() != 0, f.Kind() == reflect.Int && f.Int() != 0:
				t.Errorf("%s: %s is left with %v", path, v.Type().Field(i).Name, f)
			}
		}
		if !r.podSelectors.Empty() || !r.entrySelectors.Empty() {
			t.Errorf("%s: the selectors are not empty", path)
		}
	}
}
