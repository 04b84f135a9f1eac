package translate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
)

// selfWorld returns the Service web, whose first pods are ready, and the Pods.
func selfWorld(ready int) string {
	text := `apiVersion: v1
kind: Service
metadata: {name: web, namespace: a}
spec: {clusterIP: 10.96.0.1, selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}]}
`
	slice := `---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-x, namespace: a, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints:
`
	for i, p := range []struct{ owner, template, locality string }{
		{"web", "1", "r1.z1"}, {"web", "1", "r1.z2"}, {"web", "2", "r1.z1"},
		{"other", "1", "r1.z1"}, {"web", "1", "r2.z1"}, {"web", "1", "r1.z2"},
	} {
		text += fmt.Sprintf(`---
apiVersion: v1
kind: Pod
metadata:
  name: web-%[1]d
  namespace: a
  labels: {app: web, service.istio.io/workload-name: %[2]s, pod-template-hash: "%[3]s", istio-locality: %[4]s}
status: {podIP: 10.1.0.%[1]d, podIPs: [{ip: 10.1.0.%[1]d}], phase: Running, conditions: [{type: Ready, status: "True"}]}
`, i, p.owner, p.template, p.locality)
		if i < ready {
			slice += fmt.Sprintf("- {addresses: [10.1.0.%[1]d], conditions: {ready: true}, "+
				"targetRef: {kind: Pod, name: web-%[1]d, namespace: a}}\n", i)
		}
	}
	return text + slice
}

// TestSelfCluster checks the assignment of a proxy's own workload: the ready Pods of its ReplicaSet in its region, by
// zone. All of these Pods share it. It follows the endpoints, and is empty for a proxy that did not ask for it or that
// does not see its own service.
func TestSelfCluster(t *testing.T) {
	w, tr := newWorld(t, mesh.Default()), newTranslator(1<<20)
	resource := func(s *snapshot.Snapshot, pod int, metadata string) *envoy.Resource {
		p := proxy(t, fmt.Appendf(nil, `{"id":"sidecar~10.1.0.%[1]d~web-%[1]d.a~a.svc.cluster.local","metadata":{"NAMESPACE":"a"%[2]s}}`,
			pod, metadata))
		return tr.Resource(s, tr.ResolveCohort(s, p), envoy.EndpointType, names.SelfCluster)
	}
	const on = `,"ENABLE_SELF_DISCOVERY":"true"`
	places := func(r *envoy.Resource) string {
		a := decode(t, r).(*endpointv3.ClusterLoadAssignment)
		var got []string
		for _, l := range a.Endpoints {
			for _, e := range l.LbEndpoints {
				got = append(got, fmt.Sprintf("%s/%s %s %d", l.Locality.Region, l.Locality.Zone,
					e.GetEndpoint().GetAddress().GetSocketAddress().GetAddress(), l.Priority))
			}
		}
		slices.Sort(got)
		return strings.Join(append(got, a.ClusterName), ", ")
	}
	s := w.apply(objects(t, "world.yaml", []byte(selfWorld(5)))...)
	for pod, want := range []string{
		"r1/z1 10.1.0.0 0, r1/z2 10.1.0.1 0, local_cluster", "r1/z1 10.1.0.0 0, r1/z2 10.1.0.1 0, local_cluster",
		"r1/z1 10.1.0.2 0, local_cluster", "r1/z1 10.1.0.3 0, local_cluster", "r2/z1 10.1.0.4 0, local_cluster",
	} {
		if got := places(resource(s, pod, on)); got != want {
			t.Errorf("web-%d: %s, want %s", pod, got, want)
		}
	}
	if resource(s, 0, on) != resource(s, 1, on) {
		t.Error("two Pods of one ReplicaSet do not share it")
	}
	if got := places(resource(s, 0, "")); got != "local_cluster" {
		t.Errorf("a proxy that does not ask for it has %s", got)
	}
	last := resource(s, 2, on)
	s = w.apply(objects(t, "world.yaml", []byte(selfWorld(6)))...)
	if got, want := places(resource(s, 0, on)), "r1/z1 10.1.0.0 0, r1/z2 10.1.0.1 0, r1/z2 10.1.0.5 0, local_cluster"; got != want {
		t.Errorf("with another Pod: %s, want %s", got, want)
	}
	if got := resource(s, 2, on); places(got) != places(last) || got.Version != last.Version {
		t.Errorf("a Pod of another ReplicaSet changes %s to %s", places(last), places(got))
	}
	s = w.apply(objects(t, "sidecar.yaml", []byte(`apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: default, namespace: a}
spec: {egress: [{hosts: ["*/*", "~./*"]}]}
`))...)
	if got := places(resource(s, 0, on)); got != "local_cluster" {
		t.Errorf("a proxy that does not see its own service has %s", got)
	}
}
