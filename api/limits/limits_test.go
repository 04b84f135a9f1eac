package limits

import (
	"reflect"
	"testing"
)

// A forgotten default would be a limit of zero: everything refused.
func TestDefaultSetsEveryLimit(t *testing.T) {
	v := reflect.ValueOf(Default())
	for i := range v.NumField() {
		if v.Field(i).IsZero() {
			t.Errorf("%s has no default", v.Type().Field(i).Name)
		}
	}
}
