package xds

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// What differs between two Unions is what looking at every name would find, whichever half has it and whatever is left out.
func TestDifference(t *testing.T) {
	const names = 5
	rapid.Check(t, func(t *rapid.T) {
		set := func(label string) *envoy.Set {
			if rapid.Bool().Draw(t, label+" is empty") {
				return nil
			}
			var list []*envoy.Resource
			for i := range names {
				if v := rapid.IntRange(0, 2).Draw(t, label); v > 0 {
					list = append(list, fakeResource(fmt.Sprint("n", i), fmt.Sprint(v)))
				}
			}
			return envoy.NewSet(list)
		}
		union := func(label string) envoy.Union {
			u := envoy.Union{Outbound: set(label + " outbound"), Inbound: set(label + " inbound")}
			for i := range names {
				if rapid.IntRange(0, 5).Draw(t, label+" omits") == 0 {
					u.Omit = frozen.Of(fmt.Sprint("n", i))
				}
			}
			return u
		}
		from, to := union("from"), union("to")
		if rapid.Bool().Draw(t, "one half stays") {
			to.Outbound = from.Outbound
		}
		var d differences
		for range 2 { // the second time from what is kept
			got := d.between(from, to, true)
			var changed, removed []*envoy.Resource
			for i := range names {
				name := fmt.Sprint("n", i)
				switch had, has := from.Get(name), to.Get(name); {
				case has != nil && (had == nil || had.Version != has.Version):
					changed = append(changed, has)
				case has == nil && had != nil:
					removed = append(removed, had)
				}
			}
			if !slices.Equal(got.changed, changed) || !slices.Equal(got.removed, removed) {
				t.Fatalf("got %v and %v, want %v and %v", got.changed, got.removed, changed, removed)
			}
		}
	})
}
