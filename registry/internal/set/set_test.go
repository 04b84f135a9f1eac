package set

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestSetAgreesWithMap compares a Set with a map over random histories.
func TestSetAgreesWithMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, want := &Set[int]{}, map[int]struct{}{}
		for _, step := range rapid.SliceOf(rapid.IntRange(-40, 40)).Draw(t, "steps") {
			if step < 0 {
				s.Remove(-step)
				delete(want, -step)
			} else {
				s.Add(step)
				want[step] = struct{}{}
			}
			got := slices.Sorted(s.All)
			if s.Len() != len(want) || !slices.Equal(got, slices.Sorted(maps.Keys(want))) {
				t.Fatalf("%v, want %v", got, want)
			}
		}
		for range s.All {
			break
		}
	})
	var none *Set[int]
	none.Remove(1)
	for range none.All {
		t.Error("nothing has a member")
	}
	if none.Len() != 0 {
		t.Error("nothing has a length")
	}
}
