package translate_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/pilot/translate"
)

// TestConcurrent lets many streams ask at once, some for the newest Snapshot and some for the one before; whoever asks gets what one stream alone would get.
func TestConcurrent(t *testing.T) {
	p, refs := readPool(t), &references{seen: map[string][]string{}}
	w := newWorld(t, mesh.Default())
	var changes []kinds.Change
	for _, k := range p.keys {
		changes = append(changes, kinds.Change{Key: k, Object: p.versions[k][0]})
	}
	snapshots := []*snapshot.Snapshot{w.apply(changes...)}
	for round := range 2 {
		for _, k := range p.keys {
			if moving(k) || k.Kind == kinds.VirtualService {
				snapshots = append(snapshots, w.apply(kinds.Change{Key: k, Object: p.versions[k][(round+1)%len(p.versions[k])]}))
			}
		}
	}
	tr := translate.New(translate.Options{Idle: 50 << 10})
	proxies := people()
	for i := 1; i < len(snapshots); i++ {
		var wg sync.WaitGroup
		var mu sync.Mutex
		got := map[string]picture{}
		for name, who := range proxies {
			for j, s := range snapshots[i-1 : i+1] {
				wg.Go(func() {
					pic := refs.picture(t, tr, s, who)
					mu.Lock()
					defer mu.Unlock()
					got[fmt.Sprint(name, j)] = pic
				})
			}
		}
		wg.Wait()
		for name, who := range proxies {
			for j, s := range snapshots[i-1 : i+1] {
				if d := differences(refs.picture(t, translate.New(translate.Options{}), s, who), got[fmt.Sprint(name, j)]); d != nil {
					t.Fatalf("snapshot %d, %s: %v", i-1+j, name, d)
				}
			}
		}
	}
}

// services makes a mesh of n services, one pod each.
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

func ask(tr *translate.Translator, s *snapshot.Snapshot, p *node.Proxy) {
	c := tr.Join(s, p)
	for range tr.Wildcard(s, c, envoy.ListenerType).All {
	}
	for r := range tr.Wildcard(s, c, envoy.ClusterType).All {
		tr.Named(s, c, envoy.EndpointType, r.Name)
	}
	tr.Named(s, c, envoy.RouteType, "80")
}

// BenchmarkCold translates all of 1000 services for one sidecar, as the first stream after a start sees it.
func BenchmarkCold(b *testing.B) {
	s := newWorld(b, mesh.Default()).apply(services(b, 1000)...)
	who := people()["web"]
	b.ReportAllocs()
	for b.Loop() {
		ask(translate.New(translate.Options{Idle: 64 << 20}), s, who)
	}
}

// BenchmarkWarm translates 1000 services after a change of one VirtualService that concerns one of them.
func BenchmarkWarm(b *testing.B) {
	w := newWorld(b, mesh.Default())
	w.apply(services(b, 1000)...)
	var versions []kinds.Change
	for i := range 2 {
		versions = append(versions, objects(b, "vs.yaml", fmt.Appendf(nil, "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: v, namespace: n0}\nspec: {hosts: [s0], http: [{timeout: %ds, route: [{destination: {host: s0}}]}]}\n", i+1))...)
	}
	tr, who := translate.New(translate.Options{Idle: 64 << 20}), people()["web"]
	ask(tr, w.apply(), who)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i++
		ask(tr, w.apply(versions[i%2]), who)
	}
}

// BenchmarkEndpoint translates 1000 services after a change of one service's endpoints.
func BenchmarkEndpoint(b *testing.B) {
	w := newWorld(b, mesh.Default())
	all := services(b, 1000)
	w.apply(all...)
	tr, who := translate.New(translate.Options{Idle: 64 << 20}), people()["web"]
	ask(tr, w.apply(), who)
	slice := all[2]
	b.ReportAllocs()
	gone := false
	for b.Loop() {
		gone = !gone
		c := slice
		if gone {
			c.Object = nil
		}
		s := w.apply(c)
		joined := tr.Join(s, who)
		for _, k := range s.Delta.Endpoints {
			for _, name := range tr.Assignments(s, joined, k) {
				tr.Named(s, joined, envoy.EndpointType, name)
			}
		}
	}
}
