package diff

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// benchSizes are the numbers of services that are measured.
func benchSizes() []int { return []int{100, 1000, 10000} }

// benchSet is a Set of n resources of a kilobyte.
func benchSet(n int) *envoy.Set {
	list := make([]*envoy.Resource, n)
	for i := range list {
		list[i] = benchResource(i, "x")
	}
	return envoy.NewSet(list)
}

func benchResource(i int, content string) *envoy.Resource {
	return envoy.NewResource(fmt.Sprint("outbound|80||", i), wrapperspb.String(strings.Repeat(content, 1000)))
}

// BenchmarkDiff: what brings a client from one Set to another that differs in one resource: made of the first one, as
// changes make them, and made by itself, as of what a client brings along.
func BenchmarkDiff(b *testing.B) {
	for _, n := range benchSizes() {
		var d Cache
		from, other := benchSet(n), benchSet(n)
		next := from.With(nil, []*envoy.Resource{benchResource(n/2, "y")})
		for what, to := range map[string]*envoy.Set{"successor": next, "stranger": other.With(nil, []*envoy.Resource{benchResource(n/2, "y")})} {
			b.Run(fmt.Sprintf("to=%s/services=%d", what, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if diff := d.Between(envoy.Union{Outbound: from}, envoy.Union{Outbound: to}, false); len(diff.Changed) != 1 {
						b.Fatalf("%d resources differ", len(diff.Changed))
					}
				}
			})
		}
	}
}
