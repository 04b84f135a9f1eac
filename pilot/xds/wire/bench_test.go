package wire

import (
	"fmt"
	"testing"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/xds/xdstest"
)

// BenchmarkSplice: a response of all resources, put together of their bytes.
func BenchmarkSplice(b *testing.B) {
	for _, n := range xdstest.Sizes() {
		e, r := NewEncoder(""), &Response{Delta: true, TypeURL: envoy.ClusterType}
		for x := range xdstest.Clusters(n).All {
			r.Resources = append(r.Resources, x)
		}
		b.Run(fmt.Sprintf("services=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				e.Encode(r)
			}
		})
	}
}
