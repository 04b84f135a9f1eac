package translate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/pilot/catalog"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
)

// TestSubsetsAreBounded: of a host with many ports as many subsets stay as fit, the first ones. A subset that is left
// out has no cluster. With fewer ports all are back.
func TestSubsetsAreBounded(t *testing.T) {
	bounds := limits.Default()
	bounds.HostClusters = 12
	w := newWorld(t, mesh.Default())
	w.builder = snapshot.NewBuilder(
		snapshot.Options{Domain: "cluster.local", Mesh: mesh.Default(), Limits: bounds, Catalog: catalog.Features()})
	w.apply(objects(t, "rule.yaml", []byte(
		`{apiVersion: networking.istio.io/v1, kind: DestinationRule, metadata: {name: r, namespace: a}, `+
			`spec: {host: one, subsets: [{name: v1}, {name: v2}, {name: v3}, {name: v4}]}}`,
	))...)
	tr, p := newTranslator(0), proxy(t, []byte(`{"id": "sidecar~10.0.0.1~x.a~a.svc.cluster.local"}`))
	for _, c := range []struct {
		ports   int
		subsets string
	}{{1, " v1 v2 v3 v4"}, {4, " v1 v2"}, {2, " v1 v2 v3 v4"}, {6, " v1"}, {12, ""}, {20, ""}, {3, " v1 v2 v3"}} {
		var ports []string
		for i := range c.ports {
			ports = append(ports, fmt.Sprintf("{name: http-%d, port: %d}", i, 81+i))
		}
		s := w.apply(objects(t, "service.yaml", []byte("{apiVersion: v1, kind: Service, metadata: {name: one, namespace: a}, spec: "+
			"{ports: ["+strings.Join(ports, ", ")+"]}}"))...)
		cohort, want, got := tr.ResolveCohort(s, p), []string{}, []string{}
		for i := range c.ports {
			for _, subset := range strings.Split(c.subsets, " ") {
				want = append(want, fmt.Sprintf("outbound|%d|%s|one.a.svc.cluster.local", 81+i, subset))
			}
		}
		for r := range tr.Wildcard(s, cohort, envoy.ClusterType).All {
			if strings.HasPrefix(r.Name, "outbound|") {
				got = append(got, r.Name)
			}
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("of %d ports: %v, want %v", c.ports, got, want)
		}
	}
}
