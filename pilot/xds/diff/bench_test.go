package diff

import (
	"fmt"
	"testing"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/xds/xdstest"
)

// BenchmarkDiff: what brings a client from one Set to another that differs in one resource: made of the first one, as
// changes make them, and made by itself, as of what a client brings along.
func BenchmarkDiff(b *testing.B) {
	for _, n := range xdstest.Sizes() {
		var d Cache
		from, other := xdstest.Clusters(n), xdstest.Clusters(n)
		next := from.With(nil, []*envoy.Resource{xdstest.Cluster(n/2, "y")})
		for what, to := range map[string]*envoy.Set{
			"successor": next, "stranger": other.With(nil, []*envoy.Resource{xdstest.Cluster(n/2, "y")}),
		} {
			b.Run(fmt.Sprintf("to=%s/services=%d", what, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if diff := d.Between(envoy.Union{Shared: from}, envoy.Union{Shared: to}, false); len(diff.Changed) != 1 {
						b.Fatalf("%d resources differ", len(diff.Changed))
					}
				}
			})
		}
	}
}
