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

// The clusters of a host with as many subsets as it may have fit, and those of one more would not.
func TestSubsets(t *testing.T) {
	for _, most := range []int{1, 12, 1 << 14} {
		for _, ports := range []int{0, 1, 3, 12, 100, 1 << 14, 1 << 15} {
			n, each := Subsets(most, ports), max(ports, 1)
			if fits := (n+1)*each <= most; n < 0 || !fits && n > 0 || (n+2)*each <= most {
				t.Errorf("%d subsets of %d ports in %d clusters", n, ports, most)
			}
		}
	}
}
