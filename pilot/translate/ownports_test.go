package translate_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
)

const ownPortsWorld = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: any, namespace: a}
spec: {hosts: [any.example], resolution: NONE, ports: [{number: 15021, name: tcp, protocol: TCP},
  {number: 15090, name: http, protocol: HTTP}, {number: 15020, name: agent, protocol: TCP}, {number: 80, name: web, protocol: HTTP}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: own, namespace: a}
spec: {hosts: [own.example], addresses: [10.9.9.9], resolution: STATIC,
  endpoints: [{address: 1.2.3.4}], ports: [{number: 15021, name: tcp, protocol: TCP}]}
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: g, namespace: a}
spec:
  selector: {istio: gw}
  servers:
  - {port: {number: 15021, name: a, protocol: HTTP}, hosts: ["*"]}
  - {port: {number: 15090, name: b, protocol: HTTP}, hosts: ["*"], bind: 127.0.0.1}
  - {port: {number: 15020, name: c, protocol: HTTP}, hosts: ["*"]}
  - {port: {number: 8080, name: d, protocol: HTTP}, hosts: ["*"]}
`

// TestOwnPorts: a proxy is sent no listener at an address that its bootstrap or its agent has, as it says itself. Other
// addresses, and proxies that name other ports or none, have all listeners.
func TestOwnPorts(t *testing.T) {
	all := "0.0.0.0_15020 0.0.0.0_15021 0.0.0.0_15090 0.0.0.0_80 10.9.9.9_15021 virtualInbound virtualOutbound"
	for _, c := range []struct {
		name  string
		proxy node.Proxy
		want  string
	}{
		{"a sidecar that names none", node.Proxy{Type: node.Sidecar}, all},
		{"a sidecar that names others", node.Proxy{Type: node.Sidecar, StatusPort: 1, MetricsPort: 2, AgentPort: 3}, all},
		{
			"a sidecar", node.Proxy{Type: node.Sidecar, StatusPort: 15021, MetricsPort: 15090, AgentPort: 15020},
			"0.0.0.0_15020 0.0.0.0_80 10.9.9.9_15021 virtualInbound virtualOutbound",
		},
		{"a router that names none", node.Proxy{Type: node.Router}, "0.0.0.0_15020 0.0.0.0_15021 0.0.0.0_8080 127.0.0.1_15090"},
		{"a router", node.Proxy{Type: node.Router, StatusPort: 15021, MetricsPort: 15090, AgentPort: 15020}, "0.0.0.0_8080 127.0.0.1_15090"},
		{
			"a router with secure metrics", node.Proxy{Type: node.Router, SecurePorts: [2]uint32{15021, 8080}},
			"0.0.0.0_15020 127.0.0.1_15090",
		},
	} {
		w, tr := newWorldOf(t, snapshot.Options{Mesh: mesh.Default()}), newTranslator(0)
		p := c.proxy
		p.ID, p.Name, p.Namespace, p.Domain, p.IPs, p.Cluster = "p.a", "p", "a", "a.svc.cluster.local", []string{"10.1.0.9"}, "Kubernetes"
		p.Labels, p.MeshID, p.Capabilities = map[string]string{"istio": "gw"}, "cluster.local", everything
		got := strings.Join(slices.Sorted(maps.Keys(sent(t, tr, w.apply(objects(t, "world.yaml", []byte(ownPortsWorld))...), &p)["lds"])), " ")
		if got != c.want {
			t.Errorf("%s has\n%s, want\n%s", c.name, got, c.want)
		}
	}
}

// TestIngressOnOwnPort checks that a listener of a Sidecar takes no port on which the sidecar listens itself: Envoy
// would refuse it, or the listener that takes all connections to the workload.
func TestIngressOnOwnPort(t *testing.T) {
	w := newWorld(t, mesh.Default())
	s := w.apply(objects(t, "world.yaml", []byte(`
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: default, namespace: a}
spec:
  ingress:
  - {port: {number: 15006, name: http, protocol: HTTP}, bind: 0.0.0.0, captureMode: NONE, defaultEndpoint: "127.0.0.1:8080"}
  - {port: {number: 15021, name: http-status, protocol: HTTP}, bind: 0.0.0.0, captureMode: NONE, defaultEndpoint: "127.0.0.1:8080"}
  - {port: {number: 15020, name: tcp-agent, protocol: TCP}, bind: 0.0.0.0, captureMode: NONE, defaultEndpoint: "127.0.0.1:8080"}
  - {port: {number: 15090, name: http-one, protocol: HTTP}, bind: 127.0.0.1, captureMode: NONE, defaultEndpoint: "127.0.0.1:8080"}
  - {port: {number: 8080, name: http-two, protocol: HTTP}, bind: 0.0.0.0, captureMode: NONE, defaultEndpoint: "127.0.0.1:8080"}
`))...)
	lds := sent(t, newTranslator(0), s, &node.Proxy{
		Type: node.Sidecar, ID: "web.a", Name: "web", Namespace: "a", Domain: "a.svc.cluster.local", IPs: []string{"10.1.0.9"},
		Cluster:      "Kubernetes",
		Interception: node.Redirect, Capabilities: everything, StatusPort: 15021, MetricsPort: 15090, AgentPort: 15020,
	})["lds"]
	got := strings.Join(slices.DeleteFunc(slices.Sorted(maps.Keys(lds)), func(n string) bool { return n == "virtualOutbound" }), " ")
	if want := "0.0.0.0_8080 127.0.0.1_15090 virtualInbound"; got != want {
		t.Errorf("listeners %s, want %s", got, want)
	}
}
