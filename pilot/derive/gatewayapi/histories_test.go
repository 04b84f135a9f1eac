package gatewayapi_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/derive"
	"github.com/istiod-lite/istiod-lite/pilot/derive/derivetest"
	"github.com/istiod-lite/istiod-lite/pilot/derive/gatewayapi"
)

func newStage() *derivetest.Driver {
	return derivetest.New(gatewayapi.New(gatewayapi.Options{Domain: "cluster.local", Limits: limits.Default(), Alpha: true}))
}

// objects is what a stage is given.
type objects map[kinds.Key]*kinds.Object

// put adds the objects of a text, or replaces those of their keys.
func (w objects) put(t testing.TB, text string) {
	t.Helper()
	for i, document := range strings.Split(text, "\n---\n") {
		var meta struct {
			APIVersion, Kind string
			Metadata         struct {
				Name, Namespace     string
				Labels, Annotations map[string]string
			}
		}
		must.Succeed(t, yaml.Unmarshal([]byte(document), &meta))
		group, _, found := strings.Cut(meta.APIVersion, "/")
		if !found {
			group = ""
		}
		at := slices.IndexFunc(kinds.All(), func(k *kinds.Kind) bool { return k.Group == group && k.Name == meta.Kind })
		if at < 0 {
			t.Fatalf("%s of %q is no kind", meta.Kind, group)
		}
		kind := kinds.All()[at]
		spec := kind.New()
		if kind.Istio {
			var parts map[string]any
			must.Succeed(t, yaml.Unmarshal([]byte(document), &parts))
			b, err := json.Marshal(parts["spec"])
			must.Succeed(t, err)
			document = string(b)
		}
		if err := yaml.Unmarshal([]byte(document), spec); err != nil {
			t.Fatalf("%s: %v", meta.Kind, err)
		}
		m := meta.Metadata
		o := &kinds.Object{Key: kinds.Key{Kind: kind, Namespace: m.Namespace, Name: m.Name}, Labels: m.Labels, Annotations: m.Annotations,
			Created: time.Unix(int64(i), 0), Spec: spec}
		w[o.Key] = o
	}
}

// said returns what is derived as text.
func said(t must.TB, d derive.Part) string {
	objects := slices.SortedFunc(slices.Values(d.Objects), func(a, b derive.Derived) int {
		return cmp.Compare(a.Object.Key.String(), b.Object.Key.String())
	})
	var all strings.Builder
	write := func(v any) {
		b, err := json.Marshal(v)
		must.Succeed(t, err)
		all.Write(append(b, '\n'))
	}
	for _, x := range objects {
		write([]any{x.Origin.String(), x.Object.String(), x.Object.Created, x.Object.Extra, x.Object.Spec})
	}
	for _, s := range d.Statuses {
		write([]any{s.Of.String(), s.Value, s.Current})
	}
	sorted := func(list []string) {
		slices.Sort(list)
		write(list)
	}
	var found, shared []string
	for _, f := range d.Findings {
		found = append(found, fmt.Sprint(f))
	}
	for _, x := range d.Shared {
		shared = append(shared, fmt.Sprint(x))
	}
	sorted(found)
	sorted(shared)
	return all.String()
}

// pieces are objects of which some have another version. Each is there or not.
func pieces(t testing.TB) [][]string {
	gateway := func(name, rest string) string {
		return "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: " + name +
			", namespace: gw}\nspec: {gatewayClassName: istio, " + rest + "}"
	}
	route := func(kind, name, ns, spec string) string {
		return "apiVersion: gateway.networking.k8s.io/v1\nkind: " + kind + "\nmetadata: {name: " + name + ", namespace: " + ns +
			"}\nspec: {" + spec + "}"
	}
	service := func(name, ns, ports string) string {
		return "apiVersion: v1\nkind: Service\nmetadata: {name: " + name + ", namespace: " + ns +
			"}\nspec: {selector: {app: x}, ports: [" + ports + "]}"
	}
	grant := func(ns, from, kind, to string) string {
		return "apiVersion: gateway.networking.k8s.io/v1\nkind: ReferenceGrant\nmetadata: {name: g, namespace: " + ns +
			"}\nspec: {from: [{group: gateway.networking.k8s.io, kind: " + kind + ", namespace: " + from + "}], to: [{group: \"\", kind: " +
			to + "}]}"
	}
	namespace := func(name, labels string) string {
		return "apiVersion: v1\nkind: Namespace\nmetadata: {name: " + name + ", labels: {" + labels + "}}"
	}
	const selected = "allowedRoutes: {namespaces: {from: Selector, selector: {matchLabels: {x: z}}}}"
	const all = "allowedRoutes: {namespaces: {from: All}}"
	policy := func(name, ns, targets, validation string) string {
		return "apiVersion: gateway.networking.k8s.io/v1\nkind: BackendTLSPolicy\nmetadata: {name: " + name + ", namespace: " + ns +
			"}\nspec: {targetRefs: [" + targets + "], validation: {hostname: w.org, " + validation + "}}"
	}
	traffic := func(name, ns, targets, rest string) string {
		return "apiVersion: gateway.networking.x-k8s.io/v1alpha1\nkind: XBackendTrafficPolicy\nmetadata: {name: " + name + ", namespace: " + ns +
			"}\nspec: {targetRefs: [" + targets + "]" + rest + "}"
	}
	const system, byMap = "wellKnownCACertificates: System", "caCertificateRefs: [{group: \"\", kind: ConfigMap, name: ca}]"
	entry := func(ns, hosts string) string {
		return "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: e, namespace: " + ns + "}\nspec: {hosts: [" +
			hosts + "], ports: [{number: 80, name: http, protocol: HTTP}, {number: 443, name: tls, protocol: TLS}], resolution: DNS}"
	}
	set := route("ListenerSet", "ls", "a", "parentRef: {name: one, namespace: gw}, listeners: [{name: x, port: 80, protocol: HTTP, "+
		"hostname: a.org, "+all+"}, {name: y, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: c}]}}]")
	written := func(of string) string {
		return of + "\nstatus: {parents: [{parentRef: {name: one, namespace: gw}, controllerName: istio.io/gateway-controller, " +
			"conditions: [{type: Accepted, status: \"True\", reason: Accepted, message: m, lastTransitionTime: \"2026-01-01T00:00:00Z\"}]}]}"
	}
	client := func(ref string) string {
		return gateway("two", "addresses: [{type: Hostname, value: one-istio}], tls: {backend: {clientCertificateRef: {"+ref+"}}}, "+
			"listeners: [{name: a, port: 80, protocol: HTTP, "+all+"}]")
	}
	const ended = "tls: {certificateRefs: [{name: c, namespace: b}]}, "
	listener := func(name, port, protocol, hostname, rest string) string {
		return "{name: " + name + ", port: " + port + ", protocol: " + protocol + ", hostname: \"" + hostname + "\", " + rest + all + "}"
	}
	own := func(listeners ...string) string {
		return gateway("one", "allowedListeners: {namespaces: {from: All}}, listeners: ["+strings.Join(listeners, ", ")+"]")
	}
	more := func(of string, listeners ...string) string {
		return route("ListenerSet", "mt", "b", "parentRef: {name: "+of+", namespace: gw}, listeners: ["+strings.Join(listeners, ", ")+"]")
	}
	const both = "{name: one, namespace: gw}, {kind: ListenerSet, name: mt, namespace: b}"
	return [][]string{
		{own(listener("t", "445", "TLS", "*.org", ended), listener("s", "443", "HTTPS", "a.org", ended),
			listener("w", "443", "HTTPS", "*.org", ended)),
			own(listener("t", "443", "TLS", "a.org", ended), listener("s", "443", "HTTPS", "*.org", ended)),
			own(listener("h", "80", "HTTP", "*.org", ""), listener("n", "80", "HTTP", "*.s.org", ""))},
		{more("one", listener("x", "80", "HTTP", "*.S.org", ""), listener("u", "443", "HTTPS", "x.org", ended)),
			more("one", listener("x", "80", "HTTP", "*.org", ""), listener("t", "445", "TLS", "s.org", ended),
				listener("x", "80", "HTTP", "s.org", "")), more("one"), more("two", listener("x", "80", "HTTP", "s.org", ""))},
		{route("TLSRoute", "m", "b", "parentRefs: ["+both+"], hostnames: [S.org, \"*.org\"], rules: [{backendRefs: [{name: w, port: "+
			"80}]}]"), route("TLSRoute", "m", "b", "parentRefs: ["+both+"], rules: [{backendRefs: [{name: w, port: 80}]}]")},
		{route("HTTPRoute", "m", "b", "parentRefs: ["+both+"], hostnames: [x.S.org, a.org, s.org], rules: [{matches: [{path: {value: "+
			"/}}, {path: {value: /}}], backendRefs: [{name: w, port: 80}]}]"),
			route("HTTPRoute", "m", "b", "parentRefs: ["+both+"], rules: [{backendRefs: [{name: w, port: 80}]}]")},
		{route("GRPCRoute", "m", "b", "parentRefs: ["+both+"], hostnames: [\"*.org\"]")},
		{route("UDPRoute", "m", "b", "parentRefs: ["+both+", {name: none}], rules: null")},
		{entry("a", "w.org, a.org"), entry("a", "a.org")},
		{entry("b", "w.org")},
		{route("HTTPRoute", "e", "a", "parentRefs: [{group: networking.istio.io, kind: ServiceEntry, name: e}, {group: "+
			"networking.istio.io, kind: ServiceEntry, name: e, namespace: b}], rules: [{backendRefs: [{group: networking.istio.io, kind: "+
			"Hostname, name: w.org, port: 80}]}]")},
		{route("HTTPRoute", "e", "b", "parentRefs: [{group: networking.istio.io, kind: ServiceEntry, name: e}, {group: \"\", kind: "+
			"Service, name: w, namespace: a}], rules: [{filters: [{type: RequestMirror, requestMirror: {backendRef: {name: w, port: "+
			"80}}}], backendRefs: [{name: w, port: 80}]}]")},
		{route("HTTPRoute", "e", "gw", "parentRefs: [{group: \"\", kind: Service, name: w, namespace: a, port: 80}], rules: "+
			"[{backendRefs: [{name: w, namespace: a, port: 80}]}]")},
		{policy("e", "a", "{group: networking.istio.io, kind: ServiceEntry, name: e, sectionName: tls}, {group: \"\", kind: Service, "+
			"name: w}", system), policy("e", "a", "{group: networking.istio.io, kind: ServiceEntry, name: e}", system)},
		{policy("f", "a", "{group: networking.istio.io, kind: ServiceEntry, name: e}, {group: networking.istio.io, kind: ServiceEntry, "+
			"name: e, sectionName: tls}", byMap)},
		{"apiVersion: v1\nkind: Secret\nmetadata: {name: c, namespace: b}\ntype: kubernetes.io/tls\ndata: {tls.crt: eA==, tls.key: eA==}",
			certificate(t, "b")},
		{"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: ca, namespace: b}\ndata: {ca.crt: x}"},
		{route("TCPRoute", "u", "b", "parentRefs: [{name: one, namespace: gw}, {group: \"\", kind: Service, name: w}], rules: "+
			"[{backendRefs: [{name: w, port: 80}]}]")},
		{route("TLSRoute", "u", "a", "parentRefs: [{name: one, namespace: gw}, {group: \"\", kind: Service, name: w}], hostnames: "+
			"[s.org, u.org], rules: [{backendRefs: [{name: w, port: 80}]}]")},
		{client("name: c, namespace: b"), client("name: none"),
			gateway("two", "addresses: [{type: Hostname, value: one-istio}], allowedListeners: {namespaces: {from: All}}, listeners: "+
				"[{name: a, port: 80, protocol: HTTP, "+all+"}]")},
		{gateway("one", "listeners: [{name: a, port: 80, protocol: HTTP, "+all+"}]"),
			gateway("one", "listeners: [{name: a, port: 80, protocol: HTTP, hostname: \"*.org\", "+selected+"}, {name: b, port: 80, "+
				"protocol: TCP}, {name: t, port: 90, protocol: TCP, "+all+"}]"),
			gateway("one", "allowedListeners: {namespaces: {from: All}}, listeners: [{name: s, port: 443, protocol: HTTPS, tls: "+
				"{certificateRefs: [{name: c, namespace: b}]}, "+all+"}, {name: p, port: 444, protocol: TLS, tls: {mode: Passthrough}, "+
				all+"}, {name: q, port: 445, protocol: TLS, hostname: \"*.org\", tls: {mode: Terminate, certificateRefs: [{name: c, "+
				"namespace: b}]}, "+all+"}]"),
			gateway("one", "allowedListeners: {namespaces: {from: All}}, listeners: [{name: a, port: 80, protocol: HTTP, "+all+"}]")},
		{gateway("two", "addresses: [{type: Hostname, value: one-istio}], listeners: [{name: a, port: 80, protocol: HTTP, "+all+"}]"),
			gateway("two", "addresses: [{type: Hostname, value: one-istio}, {type: Hostname, value: w.b}], listeners: [{name: a, port: 81, "+
				"protocol: HTTP, "+all+"}]"),
			gateway("two", "addresses: [{type: Hostname, value: one-istio}], listeners: [{name: a, port: 80, protocol: HTTP, "+all+"}]") +
				"\nstatus: {conditions: [{type: Accepted, status: \"True\", reason: Accepted, message: m, lastTransitionTime: " +
				"\"2026-01-01T00:00:00Z\"}], listeners: [{name: a, attachedRoutes: 3, supportedKinds: [], conditions: []}]}"},
		{set, strings.ReplaceAll(set, "name: one", "name: two"),
			set + "\nstatus: {listeners: [{name: x, attachedRoutes: 7, supportedKinds: [], conditions: []}]}"},
		{service("one-istio", "gw", "{port: 80}, {port: 443}, {port: 444}, {port: 445}, {port: 90}"), service("one-istio", "gw", "{port: 80}")},
		{service("w", "a", "{port: 80}"), service("w", "a", "{port: 80}, {port: 90}")},
		{service("w", "b", "{port: 80}")},
		{grant("b", "a", "HTTPRoute", "Service"), grant("b", "gw", "Gateway", "Secret"), grant("b", "a", "TCPRoute", "Service")},
		{namespace("a", "x: w"), namespace("a", "x: z")},
		{namespace("b", "x: w")},
		{route("HTTPRoute", "r", "a", "parentRefs: [{name: one, namespace: gw}], hostnames: [a.org, \"*.org\"], rules: [{backendRefs: "+
			"[{name: w, port: 80}]}]"), written(route("HTTPRoute", "r", "a",
			"parentRefs: [{name: one, namespace: gw}], hostnames: [a.org, \"*.org\"], rules: [{backendRefs: [{name: w, port: 80}]}]")),
			route("HTTPRoute", "r", "a", "parentRefs: [{name: one, namespace: gw, sectionName: a}, {name: two, namespace: gw}, {kind: "+
				"ListenerSet, name: ls}, {group: \"\", kind: Service, name: w}], rules: [{matches: [{path: {value: /x}}], backendRefs: [{name: "+
				"w, namespace: b, port: 80}]}]")},
		{route("HTTPRoute", "q", "b", "parentRefs: [{name: one, namespace: gw}, {group: \"\", kind: Service, name: w, namespace: a, "+
			"port: 80}], hostnames: [a.org], rules: [{backendRefs: [{name: w, port: 81, weight: 3}, {name: w, namespace: a, port: 80}]}]")},
		{route("GRPCRoute", "g", "a", "parentRefs: [{name: two, namespace: gw}, {group: \"\", kind: Service, name: w}], rules: "+
			"[{matches: [{method: {service: s}}], backendRefs: [{name: w, port: 80}]}]")},
		{route("TCPRoute", "t", "a", "parentRefs: [{name: one, namespace: gw}], rules: [{backendRefs: [{name: w, namespace: b, port: "+
			"80}]}]"), route("TCPRoute", "t", "a", "parentRefs: [{name: one, namespace: gw, port: 90}, {group: \"\", kind: Service, name: "+
			"w}], rules: [{backendRefs: [{name: w, port: 80}]}]")},
		{route("HTTPRoute", "p", "b", "parentRefs: [{name: one, namespace: gw}, {group: \"\", kind: Service, name: w}], hostnames: "+
			"[a.org], rules: [{backendRefs: [{name: w, port: 80}]}]")},
		{route("UDPRoute", "d", "a", "parentRefs: [{name: one, namespace: gw}, {group: \"\", kind: Service, name: w}], rules: "+
			"[{backendRefs: [{name: w, port: 80}]}]")},
		{route("TLSRoute", "v", "a", "parentRefs: [{name: one, namespace: gw}, {name: one, namespace: gw, sectionName: q}], hostnames: "+
			"[\"*.org\", s.org], rules: [{backendRefs: [{name: w, port: 80}]}]")},
		{route("TLSRoute", "s", "b", "parentRefs: [{name: one, namespace: gw}], hostnames: [s.org], rules: [{backendRefs: [{name: w, "+
			"port: 80}]}]")},
		{policy("p", "b", "{group: \"\", kind: Service, name: w}", system)},
		{policy("o", "b", "{group: \"\", kind: Service, name: w}", byMap)},
		{traffic("p", "b", "{group: \"\", kind: Service, name: w}", ", retryConstraint: {budget: {percent: 30}}"),
			traffic("p", "b", "{group: \"\", kind: Service, name: w}", "")},
		{traffic("o", "b", "{group: \"\", kind: Service, name: w}, {group: \"\", kind: Service, name: none}",
			", retryConstraint: {budget: {percent: 40}}")},
		{"apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {name: istio}\nspec: {controllerName: " +
			"istio.io/gateway-controller}", "apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {name: istio}\nspec: " +
			"{controllerName: example.com/other}"},
	}
}

// TestHistories: after any history of changes a stage has made what one makes that sees the objects for the first time.
func TestHistories(t *testing.T) {
	all := pieces(t)
	derived := 0
	rapid.Check(t, func(rt *rapid.T) {
		world, stage := objects{}, newStage()
		for range rapid.IntRange(5, 40).Draw(rt, "steps") {
			for range rapid.IntRange(1, 3).Draw(rt, "changes") {
				piece := rapid.SampledFrom(all).Draw(rt, "piece")
				version := rapid.IntRange(-1, len(piece)-1).Draw(rt, "version")
				next := objects{}
				next.put(t, piece[max(version, 0)])
				age := rapid.IntRange(0, 1).Draw(rt, "age")
				for key, o := range next {
					o.Created = time.Unix(int64(age), 0)
					if world[key] = o; version < 0 {
						delete(world, key)
					}
				}
			}
			if rapid.IntRange(0, 9).Draw(rt, "fault") == 0 {
				stage.Forget()
			}
			got := stage.Run(rt, world, mesh.Default())
			fresh := newStage()
			want := fresh.Run(rt, world, mesh.Default())
			derived += len(want.Objects)
			if a, b := said(rt, got), said(rt, want); a != b {
				rt.Fatalf("after this history:\n%s\nfor the first time:\n%s", a, b)
			}
			if stage.Watched() != fresh.Watched() {
				rt.Fatalf("after this history %d keys are watched, for the first time %d", stage.Watched(), fresh.Watched())
			}
			if stage.Run(rt, world, mesh.Default()); len(stage.Last.Parts)+len(stage.Last.Unwatched) > 0 {
				rt.Fatalf("without a change: %v", stage.Last)
			}
		}
		if got := stage.Run(rt, objects{}, mesh.Default()); said(rt, got) != said(rt, derive.Part{}) || stage.Watched() > 0 {
			rt.Fatalf("of nothing is made:\n%s\nand %d keys are watched", said(rt, got), stage.Watched())
		}
	})
	if derived == 0 {
		t.Error("nothing was derived")
	}
}

// certificate returns a Secret of a namespace with a certificate that can be used.
func certificate(t testing.TB, namespace string) string {
	t.Helper()
	recorded, err := txtar.ParseFile("testdata/istiod/10-listenerset.txtar")
	must.Succeed(t, err)
	secret := strings.Split("\n"+string(recorded.Files[0].Data), "\n---\n")[1]
	return strings.NewReplacer("name: cert", "name: c", "namespace: gw", "namespace: "+namespace).Replace(secret)
}

// TestOneRoute: a route that changes has its own VirtualService made again, with its status, and nothing else. Where
// its status alone changes nothing is made but that.
func TestOneRoute(t *testing.T) {
	world, stage := objects{}, newStage()
	for i, piece := range pieces(t) {
		world.put(t, piece[0])
		const route = "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: x%d, namespace: gw}\nspec: " +
			"{parentRefs: [{name: one}], hostnames: [x%[1]d.org], rules: [{backendRefs: [{name: w, namespace: a, port: 80}]}]}"
		world.put(t, fmt.Sprintf(route, i))
	}
	if all := stage.Run(t, world, mesh.Default()); len(all.Objects) < len(pieces(t)) {
		t.Fatalf("%d objects", len(all.Objects))
	}
	const changed = "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: x1, namespace: gw}\nspec: " +
		"{parentRefs: [{name: one}], hostnames: [x1.org], rules: [{backendRefs: [{name: w, namespace: a, port: 81}]}]}"
	made := func(text string) (list []string) {
		world.put(t, text)
		stage.Run(t, world, mesh.Default())
		for _, p := range stage.Last.Parts {
			for _, d := range p.Objects {
				list = append(list, d.Object.String())
			}
			for _, s := range p.Statuses {
				list = append(list, "status of "+s.Of.String())
			}
		}
		slices.Sort(list)
		return list
	}
	if got, want := made(changed), []string{"VirtualService gw/gw~one~istio-autogenerated-k8s-gateway~a~x1.org",
		"status of HTTPRoute gw/x1"}; !slices.Equal(got, want) {
		t.Errorf("%q is made, want %q", got, want)
	}
	const status = "\nstatus: {parents: [{parentRef: {name: one}, controllerName: istio.io/gateway-controller, conditions: []}]}"
	if got, want := made(changed+status), []string{"status of HTTPRoute gw/x1"}; !slices.Equal(got, want) {
		t.Errorf("%q is made of a status, want %q", got, want)
	}
}

// TestWrittenStatus: where what is written of a Gateway alone changes, as with each route that comes, no route is made
// anew.
func TestWrittenStatus(t *testing.T) {
	world, stage, all := objects{}, newStage(), pieces(t)
	for _, piece := range all {
		world.put(t, piece[0])
	}
	before := stage.Run(t, world, mesh.Default())
	world.put(t, all[slices.IndexFunc(all, func(piece []string) bool {
		return len(piece) == 3 && strings.Contains(piece[2], "attachedRoutes: 3")
	})][2])
	after := stage.Run(t, world, mesh.Default())
	if len(after.Objects) != len(before.Objects) || len(before.Objects) < 5 {
		t.Fatalf("%d objects, then %d", len(before.Objects), len(after.Objects))
	}
	for i, d := range after.Objects {
		if d.Object != before.Objects[i].Object {
			t.Errorf("%s is made anew", d.Object)
		}
	}
	two := kinds.Key{Kind: kinds.KubeGateway, Namespace: "gw", Name: "two"}
	for _, s := range after.Statuses {
		if s.Of == two && !strings.Contains(fmt.Sprint(s.Current), "attachedRoutes:3") {
			t.Errorf("the status that it has is %v", s.Current)
		}
		if s.Of == two && !strings.Contains(fmt.Sprint(s.Value), "2026-01-01") {
			t.Errorf("the time of its condition is lost: %v", s.Value)
		}
	}
}

// TestShared: a listener's certificate is shared with the service account of the proxies that are deployed for the
// Gateway, or with the account that an annotation names. A certificate in another namespace is shared by its grant
// alone, and the CA of a policy's namespace with all. If the account is not known, a certificate in the Gateway's
// namespace is not shared, and a granted certificate is shared with the accounts of the namespace that may list Secrets
// there.
func TestShared(t *testing.T) {
	world, stage := objects{}, newStage()
	world.put(t, `apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: gw}
spec: {gatewayClassName: istio, listeners: [{name: a, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: c, namespace: b}]}},
  {name: b, port: 444, protocol: HTTPS, tls: {certificateRefs: [{name: own}]}}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: BackendTLSPolicy
metadata: {name: p, namespace: b}
spec: {targetRefs: [{group: "", kind: Service, name: w}],
  validation: {hostname: w.org, caCertificateRefs: [{group: "", kind: ConfigMap, name: ca}]}}`)
	shared := func() string { return fmt.Sprint(stage.Run(t, world, mesh.Default()).Shared) }
	const own = "{gw edge-istio kubernetes-gateway://gw/own}"
	if got := shared(); got != "["+own+"]" {
		t.Errorf("without a grant and a ConfigMap, %s", got)
	}
	world.put(t, `apiVersion: gateway.networking.k8s.io/v1
kind: ReferenceGrant
metadata: {name: g, namespace: b}
spec: {from: [{group: gateway.networking.k8s.io, kind: Gateway, namespace: gw}], to: [{group: "", kind: Secret, name: c}]}`)
	if got := shared(); got != "[{gw edge-istio kubernetes-gateway://b/c} "+own+"]" {
		t.Errorf("with a grant, %s", got)
	}
	const gateway = `apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: gw, annotations: {%s}}
spec: {gatewayClassName: istio, addresses: %s,
  listeners: [{name: a, port: 443, protocol: HTTPS, tls: {options: {%s}, certificateRefs: [{name: c, namespace: b}]}}]}`
	const annotation = "gateway.istio.io/service-account: porter"
	for addresses, unknown := range map[string]string{
		"[]":                                   "edge-istio",
		"[{type: Hostname, value: elsewhere}]": "",
		"[{type: IPAddress, value: 10.0.0.1}, {type: IPAddress, value: 10.0.0.2}]": "",
	} {
		for annotations, account := range map[string]string{annotation: "porter", "": unknown} {
			world.put(t, fmt.Sprintf(gateway, annotations, addresses, "gateway.istio.io/tls-terminate-mode: MUTUAL"))
			want := fmt.Sprintf("[{gw %[1]s kubernetes-gateway://b/c} {gw %[1]s kubernetes-gateway://b/c-cacert}]", account)
			if got := shared(); got != want {
				t.Errorf("with addresses %s and annotations {%s}, %s, want %s", addresses, annotations, got, want)
			}
		}
	}
	for key := range world {
		if key.Kind == kinds.ReferenceGrant {
			delete(world, key)
		}
	}
	world.put(t, fmt.Sprintf(gateway, annotation, "[]", ""))
	if got := shared(); got != "[]" {
		t.Errorf("without the grant, %s", got)
	}
}
