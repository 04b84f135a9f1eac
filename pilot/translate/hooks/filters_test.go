package hooks

import (
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// TestFiltersAreMadeOnce: chains that do not differ in what a feature reads share its filters, and a feature is shown
// nothing else.
func TestFiltersAreMadeOnce(t *testing.T) {
	made := 0
	f := &feature.Feature{Name: "f", Hooks: feature.Hooks{
		FiltersReadOf: func(c feature.Chain) feature.Chain { return feature.Chain{HTTP: c.HTTP, Selection: c.Selection} },
		NetworkFilters: func(c feature.Chain) []*listenerv3.Filter {
			if made++; c.StatPrefix != "" {
				t.Errorf("the feature is shown %q", c.StatPrefix)
			}
			return []*listenerv3.Filter{{Name: "filter"}}
		},
	}}
	one, other := feature.Of(&kinds.Object{}), feature.Of(&kinds.Object{})
	for keep, want := range map[bool]int{true: 3, false: 6} {
		h := New([]*feature.Feature{f}, keep)
		made = 0
		for range 2 {
			for _, c := range []feature.Chain{{StatPrefix: "a", Selection: one}, {StatPrefix: "b", Selection: other},
				{StatPrefix: "c", HTTP: true, Selection: one}} {
				k := filterKey{"f", f.FiltersReadOf(c), true}
				if got := filters(h, f, c, true, f.NetworkFilters); len(got) != 1 {
					t.Errorf("%v: %v", k, got)
				}
			}
		}
		if made != want {
			t.Errorf("filters are kept: %v; made %d times, want %d", keep, made, want)
		}
	}
}
