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

const edge = `apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: gw}
spec: {gatewayClassName: istio, listeners: [{name: a, port: 8080, protocol: HTTP}, {name: t, port: 90, protocol: TCP}]}
---
apiVersion: v1
kind: Service
metadata: {name: w, namespace: gw}
spec: {selector: {app: x}, ports: [{port: 80}]}
---
`

// conditionsOf returns the conditions of a value of a status, and of all parts of it, as "type=status reason".
func conditionsOf(v any) (list []string) {
	switch v := v.(type) {
	case map[string]any:
		if v["reason"] != nil && v["type"] != nil {
			list = append(list, fmt.Sprintf("%s=%s %s", v["type"], v["status"], v["reason"]))
		}
		for _, child := range v {
			list = append(list, conditionsOf(child)...)
		}
	case []any:
		for _, child := range v {
			list = append(list, conditionsOf(child)...)
		}
	}
	slices.Sort(list)
	return list
}

// derived returns what a stage makes of a text.
func derived(t *testing.T, text string) derive.Part {
	t.Helper()
	world, stage := objects{}, newStage()
	world.put(t, text)
	return stage.Run(t, world, mesh.Default())
}

func statusOf(d derive.Part, kind *kinds.Kind, name string) map[string]any {
	for _, s := range d.Statuses {
		if s.Of.Kind == kind && s.Of.Name == name {
			return s.Value
		}
	}
	return nil
}

// TestUnsupportedRoutes: a route with what proxies do not take has a status that says so, a finding at the field with
// the fix, and answers its requests with 500: no other route gets them.
func TestUnsupportedRoutes(t *testing.T) {
	const refused = "Accepted=False UnsupportedValue, ResolvedRefs=True ResolvedRefs"
	const unresolved = "Accepted=True Accepted, ResolvedRefs=False InvalidFilter"
	const accepted = "Accepted=True Accepted, ResolvedRefs=True ResolvedRefs"
	for _, c := range []struct {
		kind, rule string
		conditions string
		field      string // of a finding; empty: none
		answers    string // of each route that is made: 500, or the host of the backend
	}{
		{"HTTPRoute", "matches: [{path: {type: RegularExpression, value: '/a(b'}}, {path: {value: /x}}], backendRefs: [{name: w, port: " +
			"80}]", refused, "spec.rules[0].matches[0].path.value", "500"},
		{"HTTPRoute", "matches: [{headers: [{name: a, value: x}, {name: b, type: RegularExpression, value: '['}]}], backendRefs: " +
			"[{name: w, port: 80}]", refused, "spec.rules[0].matches[0].headers[1].value", ""},
		{"HTTPRoute", "matches: [{queryParams: [{name: b, type: RegularExpression, value: '*'}]}], backendRefs: [{name: w, port: 80}]",
			refused, "spec.rules[0].matches[0].queryParams[0].value", ""},
		{"HTTPRoute", "matches: [{path: {type: RegularExpression, value: '/(a{1000}){1000}'}}], backendRefs: [{name: w, port: 80}]",
			refused, "spec.rules[0].matches[0].path.value", ""},
		{"HTTPRoute", "matches: [{path: {type: RegularExpression, value: '/a.*'}}], backendRefs: [{name: w, port: 80}]", accepted, "",
			"w.gw.svc.cluster.local"},
		{"GRPCRoute", "matches: [{method: {type: RegularExpression, service: '('}}], backendRefs: [{name: w, port: 80}]", refused,
			"spec.rules[0].matches[0].method.service", ""},
		{"GRPCRoute", "matches: [{method: {type: RegularExpression, method: '('}}], backendRefs: [{name: w, port: 80}]", refused,
			"spec.rules[0].matches[0].method.method", ""},
		{"GRPCRoute", "matches: [{headers: [{name: b, type: RegularExpression, value: ')'}]}], backendRefs: [{name: w, port: 80}]",
			refused, "spec.rules[0].matches[0].headers[0].value", ""},
		{"HTTPRoute", "filters: [{type: Unheard}], backendRefs: [{name: w, port: 80}]", refused, "spec.rules[0].filters[0].type", "500"},
		{"HTTPRoute", "filters: [{type: ExternalAuth}], backendRefs: [{name: w, port: 80}]", refused, "spec.rules[0].filters[0].type", "500"},
		{"GRPCRoute", "filters: [{type: Unheard}], backendRefs: [{name: w, port: 80}]", refused, "spec.rules[0].filters[0].type", "500"},
		{"HTTPRoute", "filters: [{type: ExtensionRef, extensionRef: {group: x.org, kind: Why, name: z}}], backendRefs: [{name: w, port: " +
			"80}]", unresolved, "spec.rules[0].filters[0]", "500"},
		{"GRPCRoute", "filters: [{type: ExtensionRef, extensionRef: {group: x.org, kind: Why, name: z}}], backendRefs: [{name: w, port: " +
			"80}]", unresolved, "spec.rules[0].filters[0]", "500"},
		{"HTTPRoute", "backendRefs: [{name: w, port: 80, filters: [{type: ExtensionRef, extensionRef: {group: x.org, kind: Why, name: " +
			"z}}]}]", unresolved, "spec.rules[0].backendRefs[0].filters[0]", "UnknownService"},
		{"HTTPRoute", "filters: [{type: RequestRedirect, requestRedirect: {scheme: ftp}}]", refused,
			"spec.rules[0].filters[0].requestRedirect.scheme", "500"},
		{"HTTPRoute", "filters: [{type: RequestRedirect, requestRedirect: {statusCode: 399}}]", refused,
			"spec.rules[0].filters[0].requestRedirect.statusCode", "500"},
		{"HTTPRoute", `filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: a, value: "b\nc"}]}}], ` +
			`backendRefs: [{name: w, port: 80}]`, refused, "spec.rules[0].filters[0].requestHeaderModifier.set[0].value", "500"},
		{"HTTPRoute", "filters: [{type: ResponseHeaderModifier, responseHeaderModifier: {add: [{name: A, value: b}, {name: a, value: " +
			"c}]}}], backendRefs: [{name: w, port: 80}]", accepted, "spec.rules[0].filters[0].responseHeaderModifier.add[1].name",
			"w.gw.svc.cluster.local"},
		{"HTTPRoute", "matches: [{headers: [{name: A, value: b}, {name: a, value: c}]}], backendRefs: [{name: w, port: 80}]", accepted,
			"spec.rules[0].matches[0].headers[1].name", "w.gw.svc.cluster.local"},
		{"HTTPRoute", "backendRefs: [{name: w, port: 80, weight: 0}, {name: w, port: 80, weight: 0}]", accepted,
			"spec.rules[0].backendRefs", "500"},
		{"HTTPRoute", "backendRefs: [{name: w, port: 80, group: x.org, kind: Why}]",
			"Accepted=True Accepted, ResolvedRefs=False InvalidKind", "spec.rules[0].backendRefs[0].kind", "UnknownService"},
		{"HTTPRoute", "backendRefs: [{name: w}]", "Accepted=True Accepted, ResolvedRefs=False InvalidDestination",
			"spec.rules[0].backendRefs[0].port", "UnknownService"},
		{"HTTPRoute", "backendRefs: [{name: w, port: 81}]", accepted, "spec.rules[0].backendRefs[0].port", "w.gw.svc.cluster.local"},
	} {
		d := derived(t, edge+"apiVersion: gateway.networking.k8s.io/v1\nkind: "+c.kind+"\nmetadata: {name: r, namespace: gw}\nspec: "+
			"{parentRefs: [{name: edge, sectionName: a}], rules: [{"+c.rule+"}]}")
		kind := kinds.HTTPRoute
		if c.kind == "GRPCRoute" {
			kind = kinds.GRPCRoute
		}
		if got := strings.Join(conditionsOf(statusOf(d, kind, "r")), ", "); got != c.conditions {
			t.Errorf("%s: %s, want %s", c.rule, got, c.conditions)
		}
		var fields []string
		for _, f := range d.Findings {
			if f.Fix == "" || f.Message == "" {
				t.Errorf("%s: a finding without a fix or a message: %+v", c.rule, f)
			}
			if f.Object == c.kind+" gw/r" {
				fields = append(fields, f.Field)
			}
		}
		if c.field != strings.Join(fields, " ") {
			t.Errorf("%s: findings at %v, want %s", c.rule, fields, c.field)
		}
		count := "1"
		if c.conditions == refused {
			count = "0"
		}
		if got := fmt.Sprint(statusOf(d, kinds.KubeGateway, "edge")["listeners"]); !strings.Contains(got, "attachedRoutes:"+count) {
			t.Errorf("%s: the Gateway has %s", c.rule, got)
		}
		answers := []string{}
		for _, x := range d.Objects {
			if x.Object.Kind != kinds.VirtualService {
				continue
			}
			for _, h := range x.Object.Spec.(*networkingv1.VirtualService).Http {
				for _, to := range h.Route {
					answers = append(answers, to.Destination.Host)
				}
				if h.DirectResponse != nil {
					answers = append(answers, fmt.Sprint(h.DirectResponse.Status))
				}
				if h.Redirect != nil {
					answers = append(answers, "redirect")
				}
			}
		}
		if got := strings.Join(answers, " "); got != c.answers {
			t.Errorf("%s: answers %s, want %s", c.rule, got, c.answers)
		}
	}
}

// TestManyExpressions: the expressions of a route have one bound together.
func TestManyExpressions(t *testing.T) {
	rule := "{matches: [{path: {type: RegularExpression, value: '/(a|bc){300}'}}], backendRefs: [{name: w, port: 80}]}, "
	d := derived(t, edge+"apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: r, namespace: gw}\nspec: "+
		"{parentRefs: [{name: edge, sectionName: a}], rules: ["+strings.Repeat(rule, 64)+"]}")
	if got := fmt.Sprint(statusOf(d, kinds.HTTPRoute, "r")); !strings.Contains(got,
		"the expressions of the route together need more than") || !strings.Contains(got, "UnsupportedValue") {
		t.Error(got)
	}
}

// TestLiteralHeaders: a percent sign in a header's value is one, unless Envoy takes the value as a text with commands.
func TestLiteralHeaders(t *testing.T) {
	for value, want := range map[string]string{"100%": "100%%", "50%%": "50%%", "a%zz%": "a%%zz%%", "%REQ(x-a)%": "%REQ(x-a)%",
		"%DOWNSTREAM_REMOTE_ADDRESS%": "%DOWNSTREAM_REMOTE_ADDRESS%", "%a %PROTOCOL%": "%%a %%PROTOCOL%%", "%FOO%": "%%FOO%%",
		"%REQ%": "%%REQ%%", "%PROTOCOL(x)%": "%%PROTOCOL(x)%%", "%UPSTREAM_HOST% %CEL(x)%": "%%UPSTREAM_HOST%% %%CEL(x)%%"} {
		d := derived(t, edge+"apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: r, namespace: gw}\nspec: "+
			"{parentRefs: [{name: edge, sectionName: a}], rules: [{filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: "+
			"[{name: a, value: '"+value+"'}]}}], backendRefs: [{name: w, port: 80}]}]}")
		got := ""
		for _, x := range d.Objects {
			if x.Object.Kind == kinds.VirtualService {
				got = x.Object.Spec.(*networkingv1.VirtualService).Http[0].Headers.Request.Set["a"]
			}
		}
		if got != want {
			t.Errorf("%s: %s, want %s", value, got, want)
		}
	}
}

// TestNoWeight: connections of a route whose backends have no weight are closed, also those to a service of the mesh.
func TestNoWeight(t *testing.T) {
	d := derived(t, edge+"apiVersion: gateway.networking.k8s.io/v1\nkind: TCPRoute\nmetadata: {name: r, namespace: gw}\nspec: "+
		"{parentRefs: [{name: edge, sectionName: t}, {group: '', kind: Service, name: w}], rules: [{backendRefs: [{name: w, port: 80, "+
		"weight: 0}]}]}")
	found := 0
	for _, x := range d.Objects {
		if x.Object.Kind != kinds.VirtualService {
			continue
		}
		found++
		spec := x.Object.Spec.(*networkingv1.VirtualService)
		if len(spec.Tcp) != 1 || spec.Tcp[0].Route[0].Destination.Host == "w.gw.svc.cluster.local" {
			t.Errorf("%s: %v", x.Object, spec.Tcp)
		}
	}
	if found != 2 || !slices.ContainsFunc(d.Findings, func(f diag.Diagnostic) bool { return f.Field == "spec.rules[0].backendRefs" }) {
		t.Errorf("%d VirtualServices, findings %v", found, d.Findings)
	}
}

// TestCollisions: what is made of a ListenerSet does not take the names of what is made of a Gateway of its name, and
// each host of a ServiceEntry has a DestinationRule.
func TestCollisions(t *testing.T) {
	d := derived(t, `apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: gw}
spec: {gatewayClassName: istio, allowedListeners: {namespaces: {from: Same}}, listeners: [{name: a, port: 80, protocol: HTTP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: ListenerSet
metadata: {name: edge, namespace: gw}
spec: {parentRef: {name: edge}, listeners: [{name: a, port: 81, protocol: HTTP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: r, namespace: gw}
spec: {parentRefs: [{name: edge}, {kind: ListenerSet, name: edge}], hostnames: [a.org], rules: [{backendRefs: [{name: w, port: 80}]}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: e, namespace: gw}
spec: {hosts: [a-b.c, a.b-c], ports: [{name: p, number: 443, protocol: TLS}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: BackendTLSPolicy
metadata: {name: p, namespace: gw}
spec: {targetRefs: [{group: networking.istio.io, kind: ServiceEntry, name: e}],
  validation: {hostname: w.org, wellKnownCACertificates: System}}`)
	seen, count := map[kinds.Key]bool{}, map[*kinds.Kind]int{}
	for _, x := range d.Objects {
		if seen[x.Object.Key] {
			t.Errorf("%s is made twice", x.Object)
		}
		seen[x.Object.Key] = true
		count[x.Object.Kind]++
	}
	if count[kinds.Gateway] != 2 || count[kinds.VirtualService] != 2 || count[kinds.DestinationRule] != 2 {
		t.Errorf("made %v", count)
	}
}

// TestManyListeners: a Gateway with 64 listeners and 200 ListenerSets of 64 has a status for each, and serves all.
func TestManyListeners(t *testing.T) {
	world, stage := objects{}, newStage()
	listeners := func(set int) string {
		var all []string
		for i := range 64 {
			all = append(all, fmt.Sprintf("{name: l%d, port: 80, protocol: HTTP, hostname: h%d.s%d.org}", i, i, set))
		}
		return strings.Join(all, ", ")
	}
	world.put(t, "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: edge, namespace: gw}\nspec: "+
		"{gatewayClassName: istio, allowedListeners: {namespaces: {from: Same}}, listeners: ["+listeners(0)+"]}")
	const sets = 200
	for i := range sets {
		world.put(t, fmt.Sprintf("apiVersion: gateway.networking.k8s.io/v1\nkind: ListenerSet\nmetadata: {name: s%d, namespace: "+
			"gw}\nspec: {parentRef: {name: edge}, listeners: [%s]}", i, listeners(i+1)))
	}
	world.put(t, "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: r, namespace: gw}\nspec: {parentRefs: "+
		"[{kind: ListenerSet, name: s7}], rules: [{backendRefs: [{name: w, port: 80}]}]}")
	d := stage.Run(t, world, mesh.Default())
	if len(d.Statuses) != sets+2 {
		t.Errorf("%d statuses", len(d.Statuses))
	}
	gateways, routes := 0, 0
	for _, x := range d.Objects {
		switch x.Object.Kind {
		case kinds.Gateway:
			gateways++
		case kinds.VirtualService:
			routes++
		}
	}
	if gateways != 64*(sets+1) || routes != 64 {
		t.Errorf("%d Gateways, %d VirtualServices", gateways, routes)
	}
	if got := fmt.Sprint(statusOf(d, kinds.KubeGateway, "edge")["attachedListenerSets"]); got != fmt.Sprint(sets) {
		t.Errorf("%s ListenerSets are attached", got)
	}
}

// TestIdleRoute: of two TCPRoutes for a listener the younger has a finding: it gets no connections.
func TestIdleRoute(t *testing.T) {
	route := func(name string) string {
		return "\n---\napiVersion: gateway.networking.k8s.io/v1\nkind: TCPRoute\nmetadata: {name: " + name +
			", namespace: gw}\nspec: {parentRefs: [{name: edge, sectionName: t}], rules: [{backendRefs: [{name: w, port: 80}]}]}"
	}
	d := derived(t, strings.TrimSuffix(edge, "\n---\n")+route("b")+route("a"))
	var idle []string
	for _, f := range d.Findings {
		if strings.Contains(f.Message, "TCPRoute gw/b, which is ") {
			idle = append(idle, f.Object+" "+f.Field)
		}
	}
	if got := strings.Join(idle, ", "); got != "TCPRoute gw/a spec.parentRefs" {
		t.Errorf("idle: %s", got)
	}
}
