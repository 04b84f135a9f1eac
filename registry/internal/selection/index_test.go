package selection_test

import (
	"fmt"
	"maps"
	"testing"

	"pgregory.net/rapid"

	"github.com/istiod-lite/istiod-lite/registry/internal/selection"
)

// TestIndexAgreesWithSearch compares the index with a search through everything.
func TestIndexAgreesWithSearch(t *testing.T) {
	type labelled struct {
		namespace string
		labels    map[string]string
	}
	labels := rapid.MapOfN(rapid.SampledFrom([]string{"app", "v", "z"}), rapid.SampledFrom([]string{"", "1", "2"}), 0, 3)
	namespaces := rapid.SampledFrom([]string{"a", "b"})
	names := rapid.IntRange(0, 4)
	rapid.Check(t, func(t *rapid.T) {
		x := selection.New[string, int]()
		selectors, members := map[string]labelled{}, map[int]labelled{}
		for range rapid.IntRange(10, 60).Draw(t, "steps") {
			n, l := names.Draw(t, "name"), labelled{namespaces.Draw(t, "namespace"), labels.Draw(t, "labels")}
			switch rapid.IntRange(0, 2).Draw(t, "what") {
			case 0:
				s := fmt.Sprint(n)
				x.SetSelector(s, l.namespace, l.labels)
				if selectors[s] = l; len(l.labels) == 0 {
					delete(selectors, s)
				}
			case 1:
				x.SetMember(n, l.namespace, l.labels)
				members[n] = l
			case 2:
				x.RemoveMember(n)
				delete(members, n)
			}
			type edge struct {
				s string
				m int
			}
			want, down, up := map[edge]bool{}, map[edge]bool{}, map[edge]bool{}
			for s, sl := range selectors {
				for m, ml := range members {
					match := sl.namespace == ml.namespace
					for k, v := range sl.labels {
						got, ok := ml.labels[k]
						match = match && ok && got == v
					}
					if match {
						want[edge{s, m}] = true
					}
				}
				x.Selected(s, func(m int) { down[edge{s, m}] = true })
			}
			for m := range members {
				x.Selecting(m, func(s string) { up[edge{s, m}] = true })
			}
			if !maps.Equal(want, down) || !maps.Equal(want, up) {
				t.Fatalf("search %v, selected %v, selecting %v", want, down, up)
			}
		}
		for s := range selectors {
			x.SetSelector(s, "", nil)
		}
		for m := range members {
			x.RemoveMember(m)
		}
		if !x.Empty() {
			t.Fatal("not empty after everything was removed")
		}
	})
}
