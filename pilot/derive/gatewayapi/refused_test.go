package gatewayapi_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
)

// TestRefused: a Gateway with an address of an unknown type, one with parameters that are not there, one with a
// listener of an unknown protocol alone, and a ListenerSet whose listeners all conflict are not accepted. The Gateway
// does not count that ListenerSet.
func TestRefused(t *testing.T) {
	world, stage := objects{}, newStage()
	world.put(t, `apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: odd, namespace: gw}
spec: {gatewayClassName: istio, addresses: [{type: example.com/odd, value: x}], listeners: [{name: a, port: 80, protocol: HTTP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: parameters, namespace: gw}
spec: {gatewayClassName: istio, infrastructure: {parametersRef: {group: "", kind: ConfigMap, name: none}},
  listeners: [{name: a, port: 80, protocol: HTTP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: class, namespace: gw}
spec: {gatewayClassName: istio, infrastructure: {parametersRef: {group: odd.io, kind: Odd, name: none}},
  listeners: [{name: a, port: 80, protocol: HTTP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: unknown, namespace: gw}
spec: {gatewayClassName: istio, listeners: [{name: a, port: 1111, protocol: INVALID}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: gw}
spec: {gatewayClassName: istio, allowedListeners: {namespaces: {from: Same}},
  listeners: [{name: a, port: 80, protocol: HTTP, hostname: a.org}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: ListenerSet
metadata: {name: good, namespace: gw}
spec: {parentRef: {name: edge},
  listeners: [{name: a, port: 80, protocol: HTTP, hostname: a.org}, {name: b, port: 80, protocol: HTTP, hostname: b.org}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: ListenerSet
metadata: {name: taken, namespace: gw}
spec: {parentRef: {name: edge}, listeners: [{name: a, port: 80, protocol: HTTP, hostname: a.org}]}`)
	is := map[string]map[string]any{}
	for _, s := range stage.Run(t, world, mesh.Default()).Statuses {
		is[s.Of.Name] = s.Value
	}
	conditions := func(name string) (list string) {
		all, _ := is[name]["conditions"].([]any)
		for _, c := range all {
			c := c.(map[string]any)
			list += fmt.Sprintf("%s=%s %s, ", c["type"], c["status"], c["reason"])
		}
		return list
	}
	for name, want := range map[string][]string{
		"odd":     {"Accepted=False UnsupportedAddress"},
		"unknown": {"Accepted=False ListenersNotValid"},

		"parameters": {"Accepted=False InvalidParameters"},
		"class":      {"Accepted=False InvalidParameters"},
		"edge":       {"Accepted=True Accepted"},
		"good":       {"Accepted=True Accepted"},
		"taken":      {"Accepted=False ListenersNotValid", "Programmed=False ListenersNotValid"},
	} {
		for _, c := range want {
			if got := conditions(name); !strings.Contains(got, c+", ") {
				t.Errorf("%s has %q, not %s", name, got, c)
			}
		}
	}
	if got := fmt.Sprint(is["unknown"]["listeners"]); !strings.Contains(got, "UnsupportedProtocol") {
		t.Errorf("the listener of an unknown protocol has %s", got)
	}
	if got := fmt.Sprint(is["edge"]["attachedListenerSets"]); got != "1" {
		t.Errorf("%s ListenerSets are attached", got)
	}
}

// TestRedirectPort: a redirect to another host without a port and a scheme has the listener's port, and one without a
// hostname that of the request.
func TestRedirectPort(t *testing.T) {
	world, stage := objects{}, newStage()
	const route = `apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: r, namespace: gw}
spec: {parentRefs: [{name: edge}], rules: [{filters: [{type: RequestRedirect, requestRedirect: %s}]}]}`
	world.put(t, `apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: gw}
spec: {gatewayClassName: istio, listeners: [{name: a, port: 8080, protocol: HTTP}]}`)
	for redirect, want := range map[string]string{
		"{hostname: b.org}":                                    "FROM_REQUEST_PORT",
		"{hostname: b.org, scheme: https}":                     "FROM_PROTOCOL_DEFAULT", // what there is without either: none
		"{statusCode: 301, scheme: https}":                     "FROM_PROTOCOL_DEFAULT",
		"{hostname: b.org, port: 81}":                          "port 81",
		"{path: {type: ReplaceFullPath, replaceFullPath: /b}}": "FROM_PROTOCOL_DEFAULT",
	} {
		world.put(t, fmt.Sprintf(route, redirect))
		got := ""
		for _, d := range stage.Run(t, world, mesh.Default()).Objects {
			if d.Object.Kind != kinds.VirtualService {
				continue
			}
			r := d.Object.Spec.(*networkingv1.VirtualService).Http[0].Redirect
			got = r.GetDerivePort().String()
			if p, is := r.RedirectPort.(*networkingv1alpha3.HTTPRedirect_Port); is {
				got = fmt.Sprint("port ", p.Port)
			}
		}
		if got != want {
			t.Errorf("%s: %q, want %q", redirect, got, want)
		}
	}
}

// TestUnreached: a rule or a match that an earlier one of its route takes is a finding, and so is a redirect that leads
// to itself.
func TestUnreached(t *testing.T) {
	world, stage := objects{}, newStage()
	world.put(t, `apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: gw}
spec: {gatewayClassName: istio, listeners: [{name: a, port: 80, protocol: HTTP}, {name: b, port: 81, protocol: HTTP}]}`)
	const redirect = `filters: [{type: RequestRedirect, requestRedirect: `
	const to = redirect + `{hostname: b.org}}]`
	const all = "{path: {value: /}}"
	for rules, want := range map[string]string{
		"[{" + to + "}, {" + to + "}]":                                                         "spec.rules[1]: the rule is never",
		"[{matches: [{path: {value: /a}}], " + to + "}, {" + to + "}]":                         "",
		"[{matches: [" + all + "], " + to + "}, {matches: [{path: {value: /a}}], " + to + "}]": "",
		"[{" + to + "}, {matches: [{path: {value: /a}}, " + all + "], " + to + "}]":            "spec.rules[1].matches[1]: the match",
		"[{" + to + "}, {matches: [{headers: [{name: x, value: y}]}], " + to + "}]":            "",
		"[{" + redirect + "{scheme: http}}]}]":                                                 "spec.rules[0].filters: at listener a of ",
		"[{" + redirect + "{port: 81}}]}]":                                                     "spec.rules[0].filters: at listener b of ",
		"[{" + redirect + "{scheme: https}}]}]":                                                "",
		"[{matches: [{method: GET}], " + redirect + "{}}]}]":                                   "",
	} {
		world.put(t, `apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: r, namespace: gw}
spec: {parentRefs: [{name: edge}], rules: `+rules+`}`)
		got := ""
		for _, f := range stage.Run(t, world, mesh.Default()).Findings {
			got += f.Field + ": " + f.Message + "\n"
		}
		if !strings.HasPrefix(got, want) || (got == "") != (want == "") || strings.Count(got, "\n") > 1 {
			t.Errorf("%s: %q, want %q", rules, got, want)
		}
	}
}

// TestUDPRoutes: a UDPRoute is accepted by no parent, and a finding says that it has no effect. That of another
// controller's Gateway is left alone.
func TestUDPRoutes(t *testing.T) {
	const text = `apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: gw}
spec: {gatewayClassName: %s, listeners: [{name: dns, port: 53, protocol: UDP}, {name: tcp, port: 90, protocol: TCP}]}
---
apiVersion: v1
kind: Service
metadata: {name: w, namespace: gw}
spec: {ports: [{port: 53, protocol: UDP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: UDPRoute
metadata: {name: r, namespace: gw, generation: 7}
spec: {parentRefs: [{name: edge, sectionName: dns}%s], rules: [{backendRefs: [{name: w, port: 53}]}]}`
	out := derived(t, fmt.Sprintf(text, "istio", `, {name: edge}, {group: "", kind: Service, name: w}`))
	status := statusOf(out, kinds.UDPRoute, "r")
	for i, want := range []string{"False NotAllowedByListeners", "False NotAllowedByListeners", "False NoMatchingParent"} {
		parent := status["parents"].([]any)[i]
		if got := reasonsOf(parent)["Accepted"]; got != want {
			t.Errorf("parent %d: %s, want %s", i, got, want)
		}
		if generation := fmt.Sprint(parent.(map[string]any)["conditions"].([]any)[0].(map[string]any)["observedGeneration"]); generation != "7" {
			t.Errorf("generation %s", generation)
		}
	}
	for i := range 3 {
		if !slices.ContainsFunc(out.Findings, func(d diag.Diagnostic) bool {
			return d.Object == "UDPRoute gw/r" && d.Field == fmt.Sprintf("spec.parentRefs[%d]", i) && strings.Contains(d.Message, "not supported")
		}) {
			t.Errorf("no finding of parent %d: %v", i, out.Findings)
		}
	}
	for _, d := range out.Objects {
		if _, is := d.Object.Spec.(*networkingv1.VirtualService); is {
			t.Errorf("%s is derived", d.Object)
		}
	}
	if status := statusOf(derived(t, fmt.Sprintf(text, "other", "")), kinds.UDPRoute, "r"); status != nil {
		t.Errorf("of another controller's Gateway: %v", status)
	}
}

// TestOverlaps: listeners of one port that terminate TLS for overlapping names have a condition that says so, those of
// a ListenerSet too, and no other listener has it.
func TestOverlaps(t *testing.T) {
	const tls = "protocol: HTTPS, tls: {certificateRefs: [{name: c}]}"
	out := derived(t, certificate(t, "gw")+`
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: gw}
spec:
  gatewayClassName: istio
  allowedListeners: {namespaces: {from: Same}}
  listeners:
  - {name: yes-a, port: 443, hostname: foo.example.com, `+tls+`}
  - {name: no-b, port: 443, hostname: foo.example.org, `+tls+`}
  - {name: yes-c, port: 443, hostname: "*.example.com", `+tls+`}
  - {name: no-port, port: 444, hostname: foo.example.com, `+tls+`}
  - {name: no-pass, port: 443, hostname: "*.foo.example.org", protocol: TLS, tls: {mode: Passthrough}}
  - {name: no-plain, port: 80, protocol: HTTP}
---
apiVersion: gateway.networking.k8s.io/v1
kind: ListenerSet
metadata: {name: more, namespace: gw}
spec: {parentRef: {name: edge}, listeners: [{name: yes-d, port: 443, hostname: a.b.example.com, `+tls+`}]}`)
	seen := 0
	for _, s := range out.Statuses {
		listeners, _ := s.Value["listeners"].([]any)
		for _, l := range listeners {
			seen++
			name := l.(map[string]any)["name"].(string)
			if got := reasonsOf(l)["OverlappingTLSConfig"]; (got == "True OverlappingHostnames") != strings.HasPrefix(name, "yes-") ||
				strings.HasPrefix(name, "no-") && got != "" {
				t.Errorf("listener %s: %q", name, got)
			}
		}
	}
	if seen != 7 {
		t.Errorf("%d listeners", seen)
	}
}
