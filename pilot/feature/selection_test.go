package feature_test

import (
	"testing"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// TestWhatIsSelected: a Selection counts if it has an object or a provider, as those have that apply by default.
func TestWhatIsSelected(t *testing.T) {
	provider := feature.Selection{Providers: frozen.ListOf(feature.ExtensionProvider{Name: "envoy"})}
	for name, s := range map[string]feature.Selection{"nothing": {}, "object": feature.Of(&kinds.Object{}), "provider": provider} {
		f := &feature.Feature{Name: name, Part: feature.InboundPart,
			Select: func(feature.Reader, string) func(feature.Workload) feature.Selection {
				return func(feature.Workload) feature.Selection { return s }
			}}
		all := feature.Select([]*feature.Feature{f}, nil, "a", feature.Workload{})(feature.InboundPart)
		if got := all.Of(f); got != s || (all == feature.Selections{}) != (name == "nothing") {
			t.Errorf("%s: %v", name, got)
		}
	}
}
