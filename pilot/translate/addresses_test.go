package translate_test

import (
	"fmt"
	"strings"
	"testing"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// TestIPv6Hosts shows which domains IPv6 addresses become.
func TestIPv6Hosts(t *testing.T) {
	domains := func(yaml string) (list []string) {
		s := newWorld(t, mesh.Default()).apply(objects(t, "w.yaml", []byte(yaml))...)
		tr := newTranslator(0)
		p := proxyOf("a")
		p.IPs = []string{"fd09::1"}
		seen := map[string]bool{}
		for _, h := range decode(t, tr.Resource(s, tr.ResolveCohort(s, p), envoy.RouteType, "80")).(*routev3.RouteConfiguration).VirtualHosts {
			for _, d := range h.Domains {
				list = append(list, h.Name+"="+d)
				if seen[strings.ToLower(d)] {
					t.Errorf("domain %s twice: Envoy refuses the route configuration", d)
				}
				seen[strings.ToLower(d)] = true
			}
		}
		return list
	}
	d := domains(`
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: v, namespace: a}
spec: {hosts: ["fd00::1"], http: [{route: [{destination: {host: web.a.svc.cluster.local}}]}]}
`)
	if !strings.Contains(fmt.Sprint(d), "=[fd00::1]") {
		t.Errorf("a VirtualService for fd00::1 has %v", d)
	}
	domains(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: one, namespace: a}
spec: {hosts: [one.example.com], addresses: ["2001:DB8::1"], resolution: STATIC,
  endpoints: [{address: 10.3.0.1}], ports: [{name: http, number: 80, protocol: HTTP}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: two, namespace: b}
spec: {hosts: [two.example.com], addresses: ["2001:db8::1"], resolution: STATIC,
  endpoints: [{address: 10.3.0.2}], ports: [{name: http, number: 80, protocol: HTTP}]}
`)
}

// TestPoliciesOfOneAddress has two workloads at one address, and a policy that selects one of them.
func TestPoliciesOfOneAddress(t *testing.T) {
	s := newWorld(t, mesh.Default()).apply(objects(t, "w.yaml", []byte(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: db, namespace: a}
spec: {hosts: [db.example.com], resolution: STATIC, workloadSelector: {labels: {app: db}},
  ports: [{name: tcp, number: 5432, protocol: TCP}]}
---
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: v1, namespace: a, labels: {app: db, version: v1, security.istio.io/tlsMode: istio}}
spec: {address: 10.2.0.9, ports: {tcp: 7001}, labels: {app: db, version: v1, security.istio.io/tlsMode: istio}}
---
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: v2, namespace: a}
spec: {address: 10.2.0.9, ports: {tcp: 7002}, labels: {app: db, version: v2, security.istio.io/tlsMode: istio}}
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: v2, namespace: a}
spec: {selector: {matchLabels: {version: v2}}, mtls: {mode: DISABLE}}
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default, namespace: a}
spec: {mtls: {mode: STRICT}}
`))...)
	tr := newTranslator(0)
	a := decode(t, tr.Resource(s, tr.ResolveCohort(s, proxyOf("a")), envoy.EndpointType,
		"outbound|5432||db.example.com")).(*endpointv3.ClusterLoadAssignment)
	n := 0
	for _, l := range a.Endpoints {
		for _, e := range l.LbEndpoints {
			n++
			port := e.GetEndpoint().GetAddress().GetSocketAddress().GetPortValue()
			tls := e.GetMetadata().GetFilterMetadata()["envoy.transport_socket_match"] != nil
			if tls != (port == 7001) {
				t.Errorf("port %d: tls %v", port, tls)
			}
		}
	}
	if n != 2 {
		t.Error(n, "endpoints")
	}
}
