package translate_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/pilot/translate"
)

// TestConcurrent has many streams ask at once, some for the newest Snapshot and some for the one before. Each must get
// what a single stream would get.
func TestConcurrent(t *testing.T) {
	p, refs := readPool(t), &references{seen: map[string][]string{}}
	w := newWorld(t, mesh.Default())
	var changes []kinds.Change
	for _, k := range p.keys {
		changes = append(changes, kinds.Change{Key: k, Object: p.versions[k][0]})
	}
	snapshots := []*snapshot.Snapshot{w.apply(changes...)}
	rounds, each := 2, 1
	if testing.Short() {
		rounds, each = 1, 2
	}
	for round := range rounds {
		for i, k := range p.keys {
			if i%each == 0 && (moving(k) || k.Kind == kinds.VirtualService) {
				snapshots = append(snapshots, w.apply(kinds.Change{Key: k, Object: p.versions[k][(round+1)%len(p.versions[k])]}))
			}
		}
	}
	tr, proxies := newTranslator(50<<10), testProxies()
	alone := make([]map[string]config, len(snapshots))
	for i, s := range snapshots {
		alone[i] = map[string]config{}
		fresh := newTranslator(0)
		for name, who := range proxies {
			alone[i][name] = refs.config(t, fresh, s, who)
		}
	}
	for i := 1; i < len(snapshots); i++ {
		var wg sync.WaitGroup
		var mu sync.Mutex
		got := map[string]config{}
		for name, who := range proxies {
			for j, s := range snapshots[i-1 : i+1] {
				wg.Go(func() {
					pic := refs.config(t, tr, s, who)
					mu.Lock()
					defer mu.Unlock()
					got[fmt.Sprint(name, j)] = pic
				})
			}
		}
		wg.Wait()
		for name := range proxies {
			for j, want := range alone[i-1 : i+1] {
				if d := differences(want[name], got[fmt.Sprint(name, j)]); d != nil {
					t.Fatalf("snapshot %d, %s: %v", i-1+j, name, d)
				}
			}
		}
	}
}

// services returns a mesh of n services with one pod each.
func services(t tb, n int) []kinds.Change {
	var all []kinds.Change
	for i := range n {
		all = append(all, objects(t, "service.yaml", fmt.Appendf(nil, `---
apiVersion: v1
kind: Service
metadata: {name: s%[1]d, namespace: n%[2]d}
spec:
  clusterIP: 10.%[3]d.%[4]d.1
  selector: {app: s%[1]d}
  ports: [{name: http, port: 80, targetPort: 8080}, {name: tcp, port: 9000}]
---
apiVersion: v1
kind: Pod
metadata: {name: s%[1]d-0, namespace: n%[2]d, labels: {app: s%[1]d, security.istio.io/tlsMode: istio}}
spec: {serviceAccountName: s%[1]d, containers: [{name: c}]}
status: {podIP: 10.%[3]d.%[4]d.2, podIPs: [{ip: 10.%[3]d.%[4]d.2}], phase: Running, conditions: [{type: Ready, status: "True"}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: s%[1]d-x, namespace: n%[2]d, labels: {kubernetes.io/service-name: s%[1]d}}
addressType: IPv4
ports: [{name: http, port: 8080}, {name: tcp, port: 9000}]
endpoints: [{addresses: [10.%[3]d.%[4]d.2], conditions: {ready: true}, targetRef: {kind: Pod, name: s%[1]d-0, namespace: n%[2]d}}]
`, i, i%benchNamespaces, i/250, i%250))...)
	}
	return all
}

// BenchmarkTranslate translates all services for one sidecar: cold, like the first stream after a start, and warm,
// after a change of one VirtualService for one of the services.
func BenchmarkTranslate(b *testing.B) {
	for _, n := range []int{100, 1000, 10000} {
		w := newWorld(b, mesh.Default())
		s := w.apply(services(b, n)...)
		var table envoy.NameInterner
		names := table.Intern(benchSets(newTranslator(0), s, nil))
		b.Run(fmt.Sprintf("memo=cold/services=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				benchSets(newTranslator(64<<20), s, names)
			}
		})
		b.Run(fmt.Sprintf("memo=warm/services=%d", n), func(b *testing.B) { benchWarm(b, w, names) })
	}
}

// benchSets asks for all Sets of a sidecar. With names it asks for those assignments, without it returns their names.
func benchSets(tr *translate.Translator, s *snapshot.Snapshot, names *envoy.Names) []string {
	tr.Prepare(s)
	p := testProxies()["web"]
	p.Name, p.Namespace, p.Domain, p.ID, p.IPs = "s0-0", "n0", "n0.svc.cluster.local", "s0-0.n0", []string{"10.0.0.2"}
	c := tr.ResolveCohort(s, p)
	clusters := tr.Wildcard(s, c, envoy.ClusterType)
	tr.Wildcard(s, c, envoy.ListenerType)
	tr.Resource(s, c, envoy.RouteType, "80")
	if names != nil {
		_, _ = tr.Get(s, c, envoy.EndpointType, names) // nothing fails
		return nil
	}
	var list []string
	for r := range clusters.Shared.All {
		list = append(list, r.Name)
	}
	return list
}

func benchWarm(b *testing.B, w *world, names *envoy.Names) {
	var versions []kinds.Change
	for i := range 2 {
		versions = append(versions, objects(b, "vs.yaml", fmt.Appendf(nil, "apiVersion: networking.istio.io/v1\nkind: VirtualService\n"+
			"metadata: {name: v, namespace: n0}\n"+
			"spec: {hosts: [s0], http: [{timeout: %ds, route: [{destination: {host: s0}}]}]}\n", i+1))...)
	}
	tr := newTranslator(64 << 20)
	for i := range 2 {
		benchSets(tr, w.apply(versions[i]), names)
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i++
		benchSets(tr, w.apply(versions[i%2]), names)
	}
}
