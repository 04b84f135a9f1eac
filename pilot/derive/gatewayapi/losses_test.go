package gatewayapi_test

import (
	"strings"
	"testing"

	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/mesh"
)

// TestSharedHosts: the VirtualServices of hosts with the same routes share the rules. A match that a route loses at
// many hosts has a finding for a few of them, and one for the others.
func TestSharedHosts(t *testing.T) {
	world := objects{}
	world.put(t, `apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: a}
spec: {gatewayClassName: istio, listeners: [{name: one, port: 80, protocol: HTTP}, {name: two, port: 81, protocol: HTTP}]}`)
	for _, name := range []string{"first", "second"} {
		world.put(t, `apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: `+name+`, namespace: a}
spec: {parentRefs: [{name: edge}], hostnames: [a.org, b.org, c.org, d.org], rules: [{matches: [{path: {value: /x}}]}]}`)
	}
	out := newStage().Run(t, world, mesh.Default())
	hosts := 0
	var first *networkingv1.VirtualService
	for _, d := range out.Objects {
		if spec, is := d.Object.Spec.(*networkingv1.VirtualService); is {
			if hosts++; first == nil {
				first = spec
			}
			if len(spec.Http) != 2 || &spec.Http[0] != &first.Http[0] {
				t.Errorf("%s has rules of its own", d.Object)
			}
		}
	}
	if hosts != 8 {
		t.Errorf("%d VirtualServices", hosts)
	}
	var lost []string
	for _, f := range out.Findings {
		if f.Code == "RouteConflict" {
			if f.Object != "HTTPRoute a/second" || f.Field != "spec.rules[0].matches[0]" {
				t.Errorf("a finding about %s: %s", f.Object, f.Field)
			}
			lost = append(lost, f.Message)
		}
	}
	if n := len(lost); n != 6 || !strings.HasPrefix(lost[0], "HTTPRoute a/first, which ") ||
		lost[n-1] != "other routes have the same for 3 more hosts or ports: this one gets no requests by it" {
		t.Errorf("%d losses:\n%s", n, strings.Join(lost, "\n"))
	}
}
