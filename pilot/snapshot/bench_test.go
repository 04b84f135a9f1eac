package snapshot_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/registry"
)

// BenchmarkCommit measures the commit of one change, by the number of services.
func BenchmarkCommit(b *testing.B) {
	for _, n := range []int{100, 1000, 10000} {
		c := registry.Changes{
			Services: map[registry.ServiceKey]*registry.Service{}, Endpoints: map[registry.ServiceKey][]*registry.Endpoint{},
			Workloads: map[registry.WorkloadKey]*registry.Workload{},
		}
		builder := snapshot.NewBuilder(snapshot.Options{Domain: "cluster.local", Mesh: mesh.Default()})
		numbered := func(i int) *registry.Service {
			return service(func(s *registry.Service) {
				s.Name, s.Namespace = fmt.Sprintf("s%d", i), fmt.Sprintf("n%d", i%20)
				s.Host = s.Name + "." + s.Namespace + ".svc.cluster.local"
			})
		}
		for i := range n {
			s := numbered(i)
			c.Services[s.Key()], c.Endpoints[s.Key()] = s, []*registry.Endpoint{endpoint("10.1.0.1"), endpoint("10.1.0.2")}
			builder.Apply([]kinds.Change{change(virtual(s.Namespace, s.Name, 1))})
		}
		builder.ApplyRegistry(c)
		builder.Commit(time.Time{})
		one, flip := numbered(7), 0
		for _, c := range []struct {
			what  string
			apply func()
		}{
			{"service", func() {
				next := *one
				builder.ApplyRegistry(registry.Changes{Services: map[registry.ServiceKey]*registry.Service{one.Key(): &next}})
			}},
			{"virtualservice", func() { flip++; builder.Apply([]kinds.Change{change(virtual("n7", "s7", int64(1+flip%2)))}) }},
			{"endpoints", func() {
				flip++
				builder.ApplyRegistry(registry.Changes{
					Endpoints: map[registry.ServiceKey][]*registry.Endpoint{one.Key(): {endpoint("10.1.0.1"), endpoint(fmt.Sprint("10.1.0.", 2+flip%2))}},
				})
			}},
		} {
			b.Run(fmt.Sprintf("change=%s/services=%d", c.what, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					c.apply()
					builder.Commit(time.Time{})
				}
			})
		}
	}
}
