package wire

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

// BenchmarkSplice: a response of all resources, put together of their bytes.
func BenchmarkSplice(b *testing.B) {
	for _, n := range benchSizes() {
		e, r := NewEncoder(""), &Response{Delta: true, TypeURL: envoy.ClusterType}
		for x := range benchSet(n).All {
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
