package world

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/registry"
)

// Histories checks that a registry's state depends only on the final objects. It runs random histories that add, change
// and delete objects in batches of any size. The accumulated changes must equal the result of one batch of the final
// versions. No change may repeat known state, and applying the final versions again must change nothing. versions holds
// objects, with several versions of one key. state returns further state to compare.
func Histories(t *testing.T, versions []kinds.Change, start func() (r registry.Registry, state func() string)) {
	pool := map[kinds.Key][]*kinds.Object{}
	var keys []kinds.Key
	for _, c := range versions {
		if pool[c.Key] == nil {
			keys = append(keys, c.Key)
		}
		pool[c.Key] = append(pool[c.Key], c.Object)
	}
	rapid.Check(t, func(t *rapid.T) {
		history := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) kinds.Change {
			c := kinds.Change{Key: rapid.SampledFrom(keys).Draw(t, "key")}
			if v := rapid.IntRange(-1, 2*len(pool[c.Key])-1).Draw(t, "version"); v >= 0 {
				c.Object = pool[c.Key][v/2]
			}
			return c
		}), 30, 150).Draw(t, "history")

		r, state := start()
		sum := NewTables()
		last := map[kinds.Key]*kinds.Object{}
		for rest := history; len(rest) > 0; {
			n := min(len(rest), rapid.IntRange(1, 8).Draw(t, "batch"))
			if err := sum.Apply(r.Apply(rest[:n])); err != nil {
				t.Fatal(err)
			}
			for _, c := range rest[:n] {
				last[c.Key] = c.Object
			}
			rest = rest[n:]
		}
		var final []kinds.Change
		for k, o := range last {
			if o != nil {
				final = append(final, kinds.Change{Key: k, Object: o})
			}
		}
		slices.SortFunc(final, func(a, b kinds.Change) int { return strings.Compare(a.String(), b.String()) })
		fresh, freshState := start()
		want := Sum(t, fresh, final)
		if d := cmp.Diff(want.Dump()+freshState(), sum.Dump()+state()); d != "" {
			t.Fatalf("history (+) differs from one batch (-):\n%s", d)
		}
		if again := r.Apply(final); !again.Empty() {
			t.Fatalf("applying the same objects again changed %+v", again)
		}
	})
}
