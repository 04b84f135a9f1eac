package translate_test

import (
	"slices"
	"testing"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/node"
)

// TestSourcesOfGatewayListeners: each listener of a gateway is traced to the Gateways that have servers at its port, in
// plaintext too, so that who rejects it is told where it comes from.
func TestSourcesOfGatewayListeners(t *testing.T) {
	w := newWorld(t, mesh.Default())
	s := w.apply(objects(t, "world.yaml", []byte(`
apiVersion: v1
kind: Service
metadata: {name: web, namespace: a}
spec: {clusterIP: 10.64.0.1, selector: {app: web}, ports: [{name: http, port: 80}]}
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: one, namespace: a}
spec: {selector: {istio: ingress}, servers: [{port: {number: 8080, name: http, protocol: HTTP}, hosts: ["one.example.com"]},
  {port: {number: 8443, name: https, protocol: HTTPS}, hosts: ["*"], tls: {mode: SIMPLE, credentialName: c}}]}
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: two, namespace: a}
spec: {selector: {istio: ingress}, servers: [{port: {number: 8080, name: http, protocol: HTTP}, hosts: ["two.example.com"]}]}
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: other, namespace: a}
spec: {selector: {istio: other}, servers: [{port: {number: 8080, name: http, protocol: HTTP}, hosts: ["*"]}]}
`))...)
	tr := newTranslator(1 << 20)
	listeners := sent(t, tr, s, &node.Proxy{
		Type: node.Router, ID: "gw.a", Name: "gw", Namespace: "a", Domain: "a.svc.cluster.local", IPs: []string{"10.1.0.9"},
		Cluster: "Kubernetes",
		Labels:  map[string]string{"istio": "ingress"}, MeshID: "cluster.local", Capabilities: everything,
	})["lds"]
	for name, want := range map[string][]string{"0.0.0.0_8080": {"one", "two"}, "0.0.0.0_8443": {"one"}} {
		r := listeners[name]
		if r == nil {
			t.Fatalf("no listener %s in %d", name, len(listeners))
		}
		var got []string
		for _, k := range tr.Sources(r) {
			if k.Kind == kinds.Gateway {
				got = append(got, k.Name)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s is made of the Gateways %v, want %v", name, got, want)
		}
	}
}
