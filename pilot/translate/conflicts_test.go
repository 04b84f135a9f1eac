package translate_test

import (
	"testing"

	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/translate"
	"github.com/istiod-lite/istiod-lite/pilot/translate/engine"
	"github.com/istiod-lite/istiod-lite/pilot/translate/view"
)

// TestConflictsAreCounted has each kind of conflict counted, and not counted any more once it is resolved.
func TestConflictsAreCounted(t *testing.T) {
	const world = `
{apiVersion: v1, kind: Service, metadata: {name: one, namespace: a},
  spec: {selector: {app: x}, ports: [{name: http, port: 80, targetPort: 8080}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: two, namespace: a},
  spec: {selector: {app: x}, ports: [{name: tcp, port: 81, targetPort: 8080}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: x, namespace: a, labels: {app: x}}, spec: {}, status: {podIP: 10.0.0.1}}
---
{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: s, namespace: a},
  spec: {hosts: [s.test], ports: [{number: 81, name: tcp, protocol: TCP}], resolution: STATIC}}
---
{apiVersion: networking.istio.io/v1, kind: DestinationRule, metadata: {name: r, namespace: a}, spec: {host: one, subsets: [{name: v1}]}}
---
{apiVersion: networking.istio.io/v1, kind: DestinationRule, metadata: {name: s, namespace: a}, spec: {host: one, subsets: [{name: v1}]}}
---
{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: v, namespace: a},
  spec: {hosts: [one.a], http: [{route: [{destination: {host: one}}]}]}}
`
	w := newWorld(t, mesh.Default())
	s := w.apply(objects(t, "world.yaml", []byte(world))...)
	tr := newTranslator(100 << 10)
	p := proxy(t, []byte(`{"id": "sidecar~10.0.0.1~x.a~a.svc.cluster.local"}`))
	ask := func() {
		c := tr.ResolveCohort(s, p)
		tr.Wildcard(s, c, envoy.ClusterType)
		tr.Wildcard(s, c, envoy.ListenerType)
		tr.Resource(s, c, envoy.RouteType, "80")
	}
	ask()
	for problem, want := range map[engine.Conflict]int{
		view.ConflictOutbound: 1, view.ConflictInbound: 1, view.DuplicateDomain: 1, view.DuplicateSubset: 1, view.DuplicateCluster: 0,
	} {
		if got := tr.Count(problem); got != want {
			t.Errorf("%s: %d, want %d", problem, got, want)
		}
	}
	for _, c := range objects(t, "world.yaml", []byte(world)) {
		c.Object = nil
		s = w.apply(c)
	}
	ask()
	for _, problem := range translate.Conflicts() {
		if got := tr.Count(problem); got != 0 {
			t.Errorf("%s: %d after everything is gone", problem, got)
		}
	}
}
