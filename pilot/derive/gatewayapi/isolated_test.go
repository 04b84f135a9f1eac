package gatewayapi_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/derive/derivetest"
	"github.com/istiod-lite/istiod-lite/pilot/derive/gatewayapi"
)

// TestIsolated: a route has no requests for hosts that a more specific listener of the port has, and a finding says so.
func TestIsolated(t *testing.T) {
	world, stage := objects{}, derivetest.New(gatewayapi.New(gatewayapi.Options{Domain: "cluster.local"}))
	const route = `apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: %s, namespace: gw}
spec:
  parentRefs: [{name: edge, sectionName: %[1]s}]
  hostnames: [b.org, "*.a.org", "*.x.a.org", y.x.a.org]
  rules: [{filters: [{type: RequestRedirect, requestRedirect: {hostname: %[1]s}}]}]
`
	listeners := []string{"any", "a", "x", "one", "other"}
	text := `apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: gw}
spec:
  gatewayClassName: istio
  listeners:
  - {name: any, port: 80, protocol: HTTP}
  - {name: a, port: 80, protocol: HTTP, hostname: "*.a.org"}
  - {name: x, port: 80, protocol: HTTP, hostname: "*.x.a.org"}
  - {name: one, port: 80, protocol: HTTP, hostname: y.x.a.org}
  - {name: other, port: 81, protocol: HTTP}
`
	for _, l := range listeners {
		text += "---\n" + fmt.Sprintf(route, l)
	}
	world.put(t, text)
	out := stage.Run(t, world, mesh.Default())
	got := map[string][]string{}
	for _, d := range out.Objects {
		if d.Object.Kind == kinds.VirtualService {
			spec := d.Object.Spec.(*networkingv1.VirtualService)
			to := spec.Http[0].Redirect.Authority
			got[to] = append(got[to], spec.Hosts...)
		}
	}
	for l, want := range map[string]string{"any": "b.org", "a": "*.a.org", "x": "*.x.a.org", "one": "y.x.a.org",
		"other": "*.a.org *.x.a.org b.org y.x.a.org"} {
		slices.Sort(got[l])
		if strings.Join(got[l], " ") != want {
			t.Errorf("the route of listener %s has %v, want %s", l, got[l], want)
		}
	}
	told := 0
	for _, f := range out.Findings {
		if strings.Contains(f.Message, "requests for ") {
			told++
		}
	}
	if told != 6 {
		t.Errorf("%d findings: %v", told, out.Findings)
	}
}

// TestAttachedToBoth: a route that attaches to the more specific listener too has the requests there, and no finding.
// One that does not is told whose listener that is.
func TestAttachedToBoth(t *testing.T) {
	const gateway = `apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: gw}
spec:
  gatewayClassName: istio
  allowedListeners: {namespaces: {from: Same}}
  listeners: [{name: any, port: 80, protocol: HTTP}, {name: a, port: 80, protocol: HTTP, hostname: a.org}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: ListenerSet
metadata: {name: more, namespace: gw}
spec: {parentRef: {name: edge}, listeners: [{name: any, port: 80, protocol: HTTP, hostname: "*.b.org"}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: r, namespace: gw}
spec: {parentRefs: [%s], hostnames: [a.org, x.b.org, c.org], rules: [{filters: [{type: RequestRedirect, requestRedirect: {hostname: x}}]}]}
`
	const set = "{kind: ListenerSet, name: more}"
	for parents, want := range map[string][]string{
		"{name: edge}, " + set: nil,
		set + ", {name: edge}": nil,
		"{name: edge}": {"requests for x.b.org go to listener any of ListenerSet gw/more: this route does not " +
			"get them by listener any"},
		"{name: edge, sectionName: any}, " + set: {"requests for a.org go to listener a: this route does not get them by listener any"},
	} {
		world, stage := objects{}, newStage()
		world.put(t, fmt.Sprintf(gateway, parents))
		var got []string
		for _, f := range stage.Run(t, world, mesh.Default()).Findings {
			if strings.HasPrefix(f.Message, "requests for ") {
				got = append(got, f.Message)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", parents, got, want)
		}
	}
}

// TestInsecureClients: a Gateway that lets clients in without a valid certificate says so.
func TestInsecureClients(t *testing.T) {
	world, stage := objects{}, derivetest.New(gatewayapi.New(gatewayapi.Options{Domain: "cluster.local"}))
	recorded, err := txtar.ParseFile("testdata/istiod/10-listenerset.txtar")
	must.Succeed(t, err)
	secret := strings.Split("\n"+string(recorded.Files[0].Data), "\n---\n")[1] // gw/cert
	for mode, insecure := range map[string]bool{"AllowValidOnly": false, "AllowInsecureFallback": true} {
		world.put(t, secret+`
---
apiVersion: v1
kind: ConfigMap
metadata: {name: ca, namespace: gw}
data: {ca.crt: x}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: gw}
spec:
  gatewayClassName: istio
  listeners: [{name: a, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: cert}]}}]
  tls: {frontend: {default: {validation: {mode: `+mode+`, caCertificateRefs: [{group: "", kind: ConfigMap, name: ca}]}}}}`)
		out := stage.Run(t, world, mesh.Default())
		if says := strings.Contains(fmt.Sprint(out.Statuses[0].Value), "InsecureFrontendValidationMode"); says != insecure {
			t.Errorf("%s: the status is %v", mode, out.Statuses[0].Value)
		}
		for _, d := range out.Objects {
			tls := d.Object.Spec.(*networkingv1.Gateway).Servers[0].Tls
			if optional := tls.Mode == networkingv1alpha3.ServerTLSSettings_OPTIONAL_MUTUAL; optional != insecure ||
				tls.GetInsecureSkipVerify().GetValue() != insecure {
				t.Errorf("%s: %v", mode, tls)
			}
		}
		if len(out.Objects) != 1 {
			t.Errorf("%s: %d objects, findings %v", mode, len(out.Objects), out.Findings)
		}
	}
}

// TestUnrouted: requests for the hostname of a listener that has no route for them are answered with 404, also where a
// listener with a wider hostname has one. A listener without a wider one needs no answer.
func TestUnrouted(t *testing.T) {
	world, stage := objects{}, newStage()
	answers := func() (list []string) {
		for _, d := range stage.Run(t, world, mesh.Default()).Objects {
			if spec, is := d.Object.Spec.(*networkingv1.VirtualService); is {
				answer := "routed"
				if r := spec.Http[0].DirectResponse; r != nil {
					answer = fmt.Sprint(r.Status)
				}
				list = append(list, fmt.Sprint(spec.Gateways[0], " ", spec.Hosts[0], " ", answer))
			}
		}
		slices.Sort(list)
		return list
	}
	const gateway = `apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: gw}
spec: {gatewayClassName: istio, listeners: [{name: any, port: 80, protocol: HTTP},
  {name: a, port: 80, protocol: HTTP, hostname: "*.a.org"}, {name: b, port: 80, protocol: HTTP, hostname: x.a.org}%s]}
`
	const route = `apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: %s, namespace: gw}
spec: {parentRefs: [{name: edge, sectionName: %s}], hostnames: [%s],
  rules: [{filters: [{type: RequestRedirect, requestRedirect: {hostname: y}}]}]}
`
	name := func(listener string) string { return "gw/edge~istio-autogenerated-k8s-gateway~" + listener }
	check := func(what string, want ...string) {
		t.Helper()
		slices.Sort(want)
		if got := answers(); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	world.put(t, fmt.Sprintf(gateway, `, {name: c, port: 81, protocol: HTTP, hostname: "*.a.org"}`))
	check("without a route", name("a")+" *.a.org 404", name("b")+" x.a.org 404")
	world.put(t, fmt.Sprintf(route, "any", "any", ""))
	check("with a route of the widest", name("any")+" * routed", name("a")+" *.a.org 404", name("b")+" x.a.org 404")
	world.put(t, fmt.Sprintf(route, "a", "a", "y.a.org"))
	check("with a route for another host", name("any")+" * routed", name("a")+" *.a.org 404", name("a")+" y.a.org routed",
		name("b")+" x.a.org 404")
	world.put(t, fmt.Sprintf(route, "a", "a", ""))
	check("with a route without hostnames", name("any")+" * routed", name("a")+" * routed", name("b")+" x.a.org 404")
	world.put(t, fmt.Sprintf(route, "a", "a", `"*.a.org"`))
	check("with a route for the hostname", name("any")+" * routed", name("a")+" *.a.org routed", name("b")+" x.a.org 404")
	for key := range world {
		if key.Name == "a" {
			delete(world, key)
		}
	}
	check("where that goes", name("any")+" * routed", name("a")+" *.a.org 404", name("b")+" x.a.org 404")
	world.put(t, strings.Replace(fmt.Sprintf(gateway, ""), "{name: any, port: 80, protocol: HTTP},", "", 1))
	check("without the widest", name("b")+" x.a.org 404")
}

// TestMovedSet: the hostname of a ListenerSet is answered with 404 behind whichever Gateway the set names.
func TestMovedSet(t *testing.T) {
	world, stage := objects{}, newStage()
	for _, name := range []string{"one", "two"} {
		world.put(t, "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: "+name+", namespace: gw}\nspec: "+
			"{gatewayClassName: istio, allowedListeners: {namespaces: {from: All}}, listeners: [{name: any, port: 80, protocol: HTTP}]}")
	}
	for i := range 40 { // Gateways are made in any order
		world.put(t, "apiVersion: gateway.networking.k8s.io/v1\nkind: ListenerSet\nmetadata: {name: set, namespace: gw}\nspec: "+
			"{parentRef: {name: "+[]string{"one", "two"}[i%2]+"}, listeners: [{name: a, port: 80, protocol: HTTP, hostname: a.org}]}")
		answers := 0
		for _, d := range stage.Run(t, world, mesh.Default()).Objects {
			if d.Object.Kind == kinds.VirtualService {
				answers++
			}
		}
		if answers != 1 {
			t.Fatalf("after %d moves there are %d answers for the hostname", i, answers)
		}
	}
}
