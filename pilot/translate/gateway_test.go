package translate_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"github.com/google/go-cmp/cmp"

	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/catalog"
	"github.com/istiod-lite/istiod-lite/pilot/translate/view"
)

const passthroughWorld = `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: a}
spec: {clusterIP: 10.64.0.1, selector: {app: web}, ports: [{name: http, port: 80}, {name: dns, port: 53, protocol: UDP}]}
---
apiVersion: v1
kind: Service
metadata: {name: api, namespace: b}
spec: {clusterIP: 10.64.0.2, selector: {app: api}, ports: [{name: tcp, port: 9000}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: web, namespace: a}
spec: {host: web, subsets: [{name: v1, labels: {version: v1}}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: out, namespace: a}
spec: {hosts: [out.example.com], location: MESH_EXTERNAL, resolution: DNS, ports: [{number: 80, name: http, protocol: HTTP}]}
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: one, namespace: istio-system, creationTimestamp: "2024-01-01T00:00:00Z"}
spec:
  selector: {istio: eastwest}
  servers:
  - {port: {number: 15443, name: all, protocol: TLS}, tls: {mode: AUTO_PASSTHROUGH}, hosts: ["*.local", "*.example.com"]}
  - {port: {number: 15444, name: b, protocol: TLS}, tls: {mode: AUTO_PASSTHROUGH}, hosts: ["b/*.b.svc.cluster.local"]}
  - {port: {number: 15445, name: none, protocol: TLS}, tls: {mode: AUTO_PASSTHROUGH}, hosts: ["*.nowhere.example.com"]}
  - {port: {number: 8080, name: plain, protocol: HTTP}, hosts: ["*"]}
  - {port: {number: 443, name: low, protocol: TLS}, tls: {mode: AUTO_PASSTHROUGH}, hosts: ["*"]}
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: two, namespace: istio-system, creationTimestamp: "2024-01-02T00:00:00Z"}
spec:
  selector: {istio: eastwest}
  servers:
  - {port: {number: 15443, name: again, protocol: TLS}, tls: {mode: AUTO_PASSTHROUGH}, hosts: ["web.a.svc.cluster.local"]}
  - {port: {number: 15444, name: plain, protocol: HTTP}, hosts: ["*"]}
  - {port: {number: 8080, name: tls, protocol: TLS}, tls: {mode: AUTO_PASSTHROUGH}, hosts: ["*"]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: pattern, namespace: b}
spec: {hosts: ["*.b.example.com"], location: MESH_INTERNAL, resolution: NONE, ports: [{number: 7000, name: tls, protocol: TLS}]}
`

// TestAutoPassthrough checks servers that forward mTLS by server name. They have one chain for each service that their
// hosts cover, beside plain HTTP where that comes second. A service whose host is a pattern has none, since Envoy
// refuses a listener with a star within a server name.
func TestAutoPassthrough(t *testing.T) {
	w := newWorld(t, mesh.Default())
	s := w.apply(objects(t, "world.yaml", []byte(passthroughWorld))...)
	tr := newTranslator(0)
	gw := &node.Proxy{
		Type: node.Router, ID: "gw.istio-system", Name: "gw", Namespace: "istio-system", Domain: "istio-system.svc.cluster.local",
		IPs: []string{"10.1.0.9"}, Cluster: "Kubernetes",
		Labels: map[string]string{"istio": "eastwest"}, Unprivileged: true, MeshID: "cluster.local", Capabilities: everything,
	}
	c := sent(t, tr, s, gw)
	got := map[string][]string{}
	for name, r := range c["lds"] {
		l := decode(t, r).(*listenerv3.Listener)
		for _, chain := range l.FilterChains {
			m, last := chain.GetFilterChainMatch(), chain.Filters[len(chain.Filters)-1]
			got[name] = append(got[name], strings.TrimSpace(strings.Join(m.GetServerNames(),
				" ")+" "+last.Name[strings.LastIndexByte(last.Name, '.')+1:]))
			if hands := len(m.GetServerNames()) > 0; hands != (len(m.GetApplicationProtocols()) > 0) || hands && len(l.ListenerFilters) != 1 {
				t.Errorf("%s: a chain for %v, %d listener filters", name, m, len(l.ListenerFilters))
			}
		}
	}
	web, v1, api := "outbound_.80_._.web.a.svc.cluster.local", "outbound_.80_.v1_.web.a.svc.cluster.local",
		"outbound_.9000_._.api.b.svc.cluster.local"
	want := map[string][]string{
		"0.0.0.0_15443": {api + " tcp_proxy", web + " tcp_proxy", v1 + " tcp_proxy"},
		"0.0.0.0_15444": {api + " tcp_proxy", "http_connection_manager"},
		"0.0.0.0_8080":  {"http_connection_manager"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if n := tr.Count(view.ConflictOutbound); n != 1 {
		t.Errorf("%d conflicts", n)
	}
	handed := slices.DeleteFunc(slices.Sorted(maps.Keys(c["cds"])), func(n string) bool { return !strings.HasPrefix(n, "outbound_") })
	if want := []string{web, v1, api}; !slices.Equal(handed, want) {
		t.Errorf("clusters %v, want %v", handed, want)
	}
	for _, kind := range []string{"cds", "eds"} {
		if c[kind][web] == nil {
			t.Errorf("no %s of what is handed on", kind)
		}
	}
	if d := catalog.Features().Unsupported(objects(t, "world.yaml", []byte(passthroughWorld))[4].Object); d != nil {
		t.Error(fmt.Sprint("a finding: ", d))
	}
}

// TestBindSpelledTwice checks that servers which spell one IPv6 address differently share its listener: Envoy refuses a
// second listener at the address.
func TestBindSpelledTwice(t *testing.T) {
	const server = `
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: %s, namespace: istio-system}
spec: {selector: {istio: gateway}, servers: [{port: {number: 8080, name: http, protocol: HTTP}, hosts: [%[1]s.example.com], bind: "%s"}]}
---`
	w := newWorld(t, mesh.Default())
	s := w.apply(objects(t, "world.yaml", []byte(fmt.Sprintf(server, "one", "::1")+fmt.Sprintf(server, "two", "0:0:0::1")))...)
	c := sent(t, newTranslator(0), s, &node.Proxy{
		Type: node.Router, ID: "gw.istio-system", Name: "gw", Namespace: "istio-system", Domain: "istio-system.svc.cluster.local",
		IPs:     []string{"fd00::9"},
		Cluster: "Kubernetes", Labels: map[string]string{"istio": "gateway"}, Capabilities: everything,
	})
	if got := slices.Sorted(maps.Keys(c["lds"])); !slices.Equal(got, []string{"::1_8080"}) {
		t.Errorf("listeners %v, want one at ::1", got)
	}
}
