package translate_test

import (
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/pilot/translate"
)

const benchNamespaces = 20 // of services

// benchMesh is a mesh with a proxy in each of its namespaces. Each proxy sees the whole mesh.
type benchMesh struct {
	*world
	translator *translate.Translator
	proxies    []*node.Proxy
}

func newBenchMesh(b *testing.B, n int) *benchMesh {
	t := &benchMesh{world: newWorld(b, mesh.Default()), translator: newTranslator(64 << 20)}
	all := services(b, n)
	for i := range 200 {
		all = append(all, virtualService(b, i, 1), objects(b, "dr.yaml",
			fmt.Appendf(nil, "apiVersion: networking.istio.io/v1\nkind: DestinationRule\n"+
				"metadata: {name: r%[1]d, namespace: n%[2]d}\n"+
				"spec: {host: s%[1]d, trafficPolicy: {connectionPool: {tcp: {maxConnections: 9}}}}\n", i, i%benchNamespaces))[0])
	}
	for i := range benchNamespaces {
		p := *testProxies()["web"]
		p.Namespace, p.Domain = fmt.Sprintf("n%d", i), fmt.Sprintf("n%d.svc.cluster.local", i)
		p.Name, p.IPs = fmt.Sprintf("s%d-0", i), []string{fmt.Sprintf("10.0.%d.2", i)}
		p.ID = p.Name + "." + p.Namespace
		t.proxies = append(t.proxies, &p)
	}
	t.askAll(t.apply(all...))
	return t
}

// askAll resolves the cohort of each proxy and asks for all its Sets.
func (m *benchMesh) askAll(s *snapshot.Snapshot) {
	m.translator.Prepare(s)
	for _, p := range m.proxies {
		m.askOne(s, m.translator.ResolveCohort(s, p))
	}
}

func (m *benchMesh) askOne(s *snapshot.Snapshot, c cohort.Key) {
	m.translator.Wildcard(s, c, envoy.ClusterType)
	m.translator.Wildcard(s, c, envoy.ListenerType)
	m.translator.Resource(s, c, envoy.RouteType, "80")
}

func virtualService(t tb, i, seconds int) kinds.Change {
	return objects(t, "vs.yaml", fmt.Appendf(nil, "apiVersion: networking.istio.io/v1\nkind: VirtualService\n"+
		"metadata: {name: v%[1]d, namespace: n%[2]d}\n"+
		"spec: {hosts: [s%[1]d], http: [{timeout: %[3]ds, route: [{destination: {host: s%[1]d}}]}]}\n", i, i%benchNamespaces, seconds))[0]
}

// changes returns pairs of changes by name. They switch a mesh of n services between two states.
func (m *benchMesh) changes(b *testing.B, n int) map[string][2][]kinds.Change {
	one := services(b, n+1)[3*n:]
	gone := func(c kinds.Change) []kinds.Change { return []kinds.Change{{Key: c.Key}} }
	return map[string][2][]kinds.Change{
		"service":        {{one[0]}, gone(one[0])},
		"virtualservice": {{virtualService(b, 0, 1)}, {virtualService(b, 0, 2)}},
		"endpoints":      {gone(services(b, 1)[2]), {services(b, 1)[2]}},
	}
}

// BenchmarkChange measures one change by the size of the mesh: the commit, the commit with all Sets of 20 scopes, and a
// proxy that connects. It counts processor time, which other programs do not disturb.
func BenchmarkChange(b *testing.B) {
	for _, n := range []int{250, 1000, 4000} {
		t := newBenchMesh(b, n)
		changes := t.changes(b, n)
		for _, what := range []string{"service", "virtualservice", "endpoints"} {
			c, i := changes[what], 0
			next := func() *snapshot.Snapshot { i++; return t.apply(c[i%2]...) }
			measure(b, fmt.Sprintf("%s/commit/%d", what, n), func() { next() })
			t.askAll(t.apply())
			measure(b, fmt.Sprintf("%s/sets/%d", what, n), func() { t.askAll(next()) })
		}
		s := t.apply()
		t.translator.Prepare(s)
		measure(b, fmt.Sprintf("join/%d", n), func() { t.translator.ResolveCohort(s, t.proxies[0]) })
	}
}

func measure(b *testing.B, name string, what func()) {
	b.Run(name, func(b *testing.B) {
		b.ReportAllocs()
		runtime.GC()
		began, n := processor(b), 0
		for b.Loop() {
			what()
			n++
		}
		b.ReportMetric(float64(processor(b)-began)/float64(n), "cpu-ns/op")
	})
}

// processor returns the processor time of this process.
func processor(b *testing.B) time.Duration {
	var u syscall.Rusage
	must.Succeed(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
