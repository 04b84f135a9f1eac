package translate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// TestVirtualServicePrecedence: of several VirtualServices for one host those come first that are private to the
// proxy's namespace, then those exported to it by name, then public ones, whatever their age, which orders each of the
// three. A sidecar has the routes of the first, a gateway those of all. A change of exportTo takes effect at once.
func TestVirtualServicePrecedence(t *testing.T) {
	w, tr := newWorld(t, mesh.Default()), newTranslator(1<<20)
	w.apply(objects(t, "world.yaml", []byte(
		`{apiVersion: v1, kind: Service, metadata: {name: web, namespace: a}, spec: {clusterIP: 10.0.0.1, ports: [{name: http, port: 80}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: gw-0, namespace: a, labels: {app: gw}},
  spec: {containers: [{name: gw, image: gw}]}, status: {podIP: 10.0.0.2}}
---
{apiVersion: networking.istio.io/v1, kind: Gateway, metadata: {name: gw, namespace: a},
  spec: {selector: {app: gw}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ["*"]}]}}
`))...)
	virtualServices := func(exportTo ...string) (all []kinds.Change) { // the oldest first
		for i, namespace := range []string{"b", "b", "a", "a"} {
			all = append(all, objects(t, "vs.yaml", fmt.Appendf(nil, `apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: v%[1]d, namespace: %[2]s, creationTimestamp: "2026-01-01T00:00:0%[1]dZ"}
spec: {hosts: [web.a.svc.cluster.local], gateways: [mesh, a/gw], exportTo: [%[3]s],
  http: [{name: v%[1]d, match: [{uri: {exact: /v%[1]d}}], route: [{destination: {host: web.a.svc.cluster.local}}]}]}
`, i+1, namespace, exportTo[i]))...)
		}
		return all
	}
	for _, c := range []struct {
		exportTo []string
		want     map[string]string // by proxy
	}{
		{[]string{"", "", "", ""}, map[string]string{"a": "v1", "b": "v1", "gateway": "v1 v2 v3 v4"}},
		{[]string{"'*'", "a", ".", "."}, map[string]string{"a": "v3", "b": "v1", "gateway": "v3 v4 v2 v1"}},
		{[]string{"'*'", "a", "a", "."}, map[string]string{"a": "v3", "b": "v1", "gateway": "v3 v4 v2 v1"}},
		{[]string{"'*'", "a", "'*'", "b"}, map[string]string{"a": "v2", "b": "v4", "gateway": "v2 v1 v3"}},
		{[]string{"'*'", "b, a", "., b", "'~'"}, map[string]string{"a": "v3", "b": "v2", "gateway": "v3 v2 v1"}},
		{[]string{"'*'", ".", "'*'", "'*'"}, map[string]string{"a": "v1", "b": "v2", "gateway": "v1 v3 v4"}},
		{[]string{"a", "'*'", "., b", "'*'"}, map[string]string{"a": "v3", "b": "v3", "gateway": "v3 v1 v2 v4"}},
	} {
		s := w.apply(virtualServices(c.exportTo...)...)
		tr.Prepare(s)
		for name, want := range c.want {
			p, route, host := &node.Proxy{Type: node.Sidecar, Name: "x", Namespace: name, IPs: []string{"10.1.0.1"}}, "80",
				"web.a.svc.cluster.local:80"
			if name == "gateway" {
				p, route, host = &node.Proxy{Type: node.Router, Name: "gw-0", Namespace: "a", IPs: []string{"10.0.0.2"}}, "http.80",
					"web.a.svc.cluster.local:80"
			}
			p.ID, p.Domain = p.Name+"."+p.Namespace, p.Namespace+".svc.cluster.local"
			var got []string
			for r := range tr.Resource(s, tr.ResolveCohort(s, p), envoy.RouteType, route).Hosts.All {
				if h := decode(t, r).(*routev3.VirtualHost); h.Name == host {
					for _, x := range h.Routes {
						got = append(got, x.Name)
					}
				}
			}
			if !slices.Equal(got, strings.Fields(want)) {
				t.Errorf("exported to %q, %s: routes %q, want %q", c.exportTo, name, got, want)
			}
		}
	}
}
