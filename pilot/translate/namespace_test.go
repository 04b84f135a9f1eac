package translate_test

import (
	"slices"
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// TestSourceNamespace: a route for callers of one namespace reaches those alone. Where no route has such a match, all
// namespaces share one virtual host.
func TestSourceNamespace(t *testing.T) {
	w := newWorld(t, mesh.Default())
	s := w.apply(objects(t, "world.yaml", []byte(`
apiVersion: v1
kind: Service
metadata: {name: asked, namespace: default}
spec: {clusterIP: 10.0.0.1, ports: [{name: http, port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: open, namespace: default}
spec: {clusterIP: 10.0.0.2, ports: [{name: http, port: 80}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: asked, namespace: default}
spec: {hosts: [asked], http: [{name: own, match: [{sourceNamespace: a}], route: [{destination: {host: asked}}]},
  {name: rest, route: [{destination: {host: asked}}]}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: open, namespace: default}
spec: {hosts: [open], http: [{name: rest, route: [{destination: {host: open}}]}]}
`))...)
	tr := newTranslator(1 << 20)
	host := func(namespace, name string) (*envoy.Resource, []string) {
		c := tr.ResolveCohort(s, &node.Proxy{Type: node.Sidecar, ID: "x." + namespace, Namespace: namespace,
			Domain: namespace + ".svc.cluster.local", IPs: []string{"10.1.0.1"}})
		r := tr.Resource(s, c, envoy.RouteType, "80").Hosts.Get("80/" + name + ".default.svc.cluster.local:80")
		if r == nil {
			t.Fatalf("%s has no virtual host in namespace %s", name, namespace)
		}
		var routes []string
		for _, x := range decode(t, r).(*routev3.VirtualHost).Routes {
			routes = append(routes, x.Name)
		}
		return r, routes
	}
	for namespace, want := range map[string][]string{"a": {"own"}, "b": {"rest"}} {
		if _, got := host(namespace, "asked"); !slices.Equal(got, want) {
			t.Errorf("namespace %s has routes %q, want %q", namespace, got, want)
		}
	}
	a, _ := host("a", "open")
	if b, _ := host("b", "open"); a != b {
		t.Error("each namespace has a virtual host of its own that says the same")
	}
}
