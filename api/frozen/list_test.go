package frozen_test

import (
	"slices"
	"testing"

	"github.com/istiod-lite/istiod-lite/api/frozen"
)

func TestListsOfEqualContentAreEqual(t *testing.T) {
	a, b := new(int), new(int)
	for _, c := range []struct {
		x, y []*int
		want bool
	}{
		{nil, nil, true},
		{[]*int{a, b}, []*int{a, b}, true},
		{[]*int{a, b}, []*int{b, a}, false},
		{[]*int{a}, []*int{a, b}, false},
		{[]*int{a}, nil, false},
	} {
		if got := frozen.ListOf(c.x...) == frozen.ListOf(c.y...); got != c.want {
			t.Errorf("%v == %v: %v", c.x, c.y, got)
		}
		if got := slices.Collect(frozen.ListOf(c.x...).All); !slices.Equal(got, c.x) {
			t.Errorf("%v came back as %v", c.x, got)
		}
	}
}
