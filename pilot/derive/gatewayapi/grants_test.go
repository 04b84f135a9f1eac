package gatewayapi_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/pilot/derive"
)

// TestGrantOfParent: a route of a Gateway leads to a Service of another namespace only by a ReferenceGrant, also if the
// Service, or a ServiceEntry with its host, is a parent of the route as well. In the mesh the Service needs none. Each
// parent's status says what holds for it, and a grant that goes cuts the route off.
func TestGrantOfParent(t *testing.T) {
	const setup = `apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: a}
spec:
  gatewayClassName: istio
  listeners:
  - {name: h, port: 80, protocol: HTTP}
  - {name: t, port: 90, protocol: TCP}
  - {name: s, port: 443, protocol: TLS, tls: {mode: Passthrough}}
---
apiVersion: v1
kind: Service
metadata: {name: secret, namespace: b}
spec: {selector: {app: x}, ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: own, namespace: a}
spec: {selector: {app: x}, ports: [{port: 80}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: alias, namespace: a}
spec: {hosts: [secret.b.svc.cluster.local], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC}
---
apiVersion: gateway.networking.k8s.io/v1
kind: %[1]s
metadata: {name: r, namespace: a}
spec:
  parentRefs: [%[2]s]
  rules: [{%[3]s}]
`
	const grant = `apiVersion: gateway.networking.k8s.io/v1
kind: ReferenceGrant
metadata: {name: g, namespace: b}
spec: {from: [{group: gateway.networking.k8s.io, kind: %s, namespace: a}], to: [{group: "", kind: Service}]}`
	const (
		gateway = "{name: edge}"
		service = `{group: "", kind: Service, name: secret, namespace: b}`
		entry   = "{group: networking.istio.io, kind: ServiceEntry, name: alias}"
		backend = "backendRefs: [{name: secret, namespace: b, port: 80}]"
		mirror  = "filters: [{type: RequestMirror, requestMirror: {backendRef: {name: secret, namespace: b, port: 80}}}], backendRefs: " +
			"[{name: own, port: 80}]"
	)
	for _, c := range []struct{ kind, rule string }{
		{"HTTPRoute", backend}, {"HTTPRoute", mirror}, {"GRPCRoute", backend}, {"GRPCRoute", mirror}, {"TCPRoute", backend},
		{"TLSRoute", backend},
	} {
		for _, parents := range []string{gateway, gateway + ", " + service, service + ", " + gateway, gateway + ", " + entry, service} {
			text := fmt.Sprintf(setup, c.kind, parents, c.rule)
			if c.kind == "TLSRoute" {
				text = strings.Replace(text, "  rules:", "  hostnames: [x.org]\n  rules:", 1)
			}
			world, stage := objects{}, newStage()
			world.put(t, text)
			byGateway, inMesh := strings.Contains(parents, gateway), strings.Contains(parents, service)
			check := func(when string, granted bool) {
				t.Helper()
				at := fmt.Sprintf("%s {%s} of %s, %s", c.kind, c.rule, parents, when)
				out := stage.Run(t, world, mesh.Default())
				leads := map[bool]bool{}
				for _, d := range out.Objects {
					if spec, is := d.Object.Spec.(*networkingv1.VirtualService); is {
						of := slices.Contains(spec.Gateways, "mesh")
						leads[of] = leads[of] || strings.Contains(strings.ReplaceAll(fmt.Sprint(spec.Http, spec.Tcp, spec.Tls), `"`, ""),
							"destination:{host:secret.b.svc.cluster.local")
					}
				}
				if leads[false] != (byGateway && granted) {
					t.Errorf("%s: the Gateway leads to the Service: %v", at, leads[false])
				}
				if inMesh && !leads[true] {
					t.Errorf("%s: clients in the mesh do not get to the Service", at)
				}
				for parent, reason := range resolvedOf(out) {
					want := "ResolvedRefs"
					if !granted && parent != "Service" {
						want = "RefNotPermitted"
					}
					if reason != want {
						t.Errorf("%s: ResolvedRefs of the parent of kind %s has the reason %s, want %s", at, parent, reason, want)
					}
				}
				told := slices.ContainsFunc(out.Findings, func(f diag.Diagnostic) bool {
					return strings.Contains(f.Message,
						"missing a ReferenceGrant?")
				})
				if told != (byGateway && !granted) {
					t.Errorf("%s: findings %v", at, out.Findings)
				}
			}
			check("without a grant", false)
			world.put(t, fmt.Sprintf(grant, c.kind))
			check("with a grant", true)
			delete(world, kinds.Key{Kind: kinds.ReferenceGrant, Namespace: "b", Name: "g"})
			check("when the grant is gone", false)
		}
	}
}

// TestGrantNamesBothEnds: a grant is good for a reference if all that it says of both ends is true of it.
func TestGrantNamesBothEnds(t *testing.T) {
	const text = `apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: a}
spec: {gatewayClassName: istio, listeners: [{name: h, port: 80, protocol: HTTP}]}
---
apiVersion: v1
kind: Service
metadata: {name: secret, namespace: b}
spec: {selector: {app: x}, ports: [{port: 80}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: r, namespace: a}
spec: {parentRefs: [{name: edge}], rules: [{backendRefs: [{name: secret, namespace: b, port: 80}]}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: ReferenceGrant
metadata: {name: g, namespace: %s}
spec: {from: [{group: %s, kind: %s, namespace: %s}], to: [{group: "%s", kind: %s, name: "%s"}]}
`
	good := []any{"b", "gateway.networking.k8s.io", "HTTPRoute", "a", "", "Service", "secret"}
	world := func(values ...any) string {
		w := objects{}
		w.put(t, fmt.Sprintf(text, values...))
		return resolvedOf(newStage().Run(t, w, mesh.Default()))["Gateway"]
	}
	if got := world(good...); got != "ResolvedRefs" {
		t.Errorf("%v: %s", good, got)
	}
	for i, other := range []string{"c", "example.com", "GRPCRoute", "c", "example.com", "Secret", "other"} {
		values := slices.Clone(good)
		values[i] = other
		if got := world(values...); got != "RefNotPermitted" {
			t.Errorf("%v: %s", values, got)
		}
	}
}

// resolvedOf returns the reasons of the conditions ResolvedRefs of routes, by the kind of the parent.
func resolvedOf(d derive.Part) map[string]string {
	reasons := map[string]string{}
	for _, s := range d.Statuses {
		parents, _ := s.Value["parents"].([]any)
		for _, p := range parents {
			p := p.(map[string]any)
			for _, c := range p["conditions"].([]any) {
				if c := c.(map[string]any); c["type"] == "ResolvedRefs" {
					reasons[p["parentRef"].(map[string]any)["kind"].(string)] = c["reason"].(string)
				}
			}
		}
	}
	return reasons
}
