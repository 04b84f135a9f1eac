package gatewayapi_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/pilot/derive"
)

// named is a route of a test, with what decides between it and another one.
type named struct {
	kind, namespace, name string
	age                   int64
}

func (n named) String() string { return n.namespace + "/" + n.name }

// first is the order of the Gateway API: the oldest, then the first by "namespace/name".
func (n named) first(o named) int {
	return cmp.Or(cmp.Compare(n.age, o.age), cmp.Compare(n.String(), o.String()))
}

// drawNames draws routes of few names and ages, each once.
func drawNames(t *rapid.T, kind ...string) (list []named) {
	seen := map[string]bool{}
	for range rapid.IntRange(1, 8).Draw(t, "routes") {
		n := named{
			rapid.SampledFrom(kind).Draw(t, "kind"), rapid.SampledFrom([]string{"a", "a-b", "b"}).Draw(t, "namespace"),
			rapid.SampledFrom([]string{"x", "x-w", "w"}).Draw(t, "name"), rapid.Int64Range(0, 1).Draw(t, "age"),
		}
		if !seen[n.String()] {
			seen[n.String()] = true
			list = append(list, n)
		}
	}
	return list
}

// deliver returns what a stage has made of routes that it was given in a random order, over several runs.
func deliver(t *rapid.T, tb testing.TB, world objects, routes map[named]string) derive.Part {
	stage := newStage()
	stage.Run(t, world, mesh.Default())
	for i, n := range rapid.Permutation(slices.SortedFunc(maps.Keys(routes), named.first)).Draw(t, "order") {
		one := objects{}
		one.put(tb, fmt.Sprintf("apiVersion: gateway.networking.k8s.io/v1\nkind: %s\nmetadata: {name: %s, namespace: %s}\nspec: %s",
			n.kind, n.name, n.namespace, routes[n]))
		for key, o := range one {
			o.Created = time.Unix(n.age, 0)
			world[key] = o
		}
		if rapid.Bool().Draw(t, "run") && i < len(routes)-1 {
			stage.Run(t, world, mesh.Default())
		}
	}
	return stage.Run(t, world, mesh.Default())
}

// ranking is a match of a rule, with what decides between it and another one.
type ranking struct {
	kind, path       string
	method           bool
	headers, queries int
	of               named
	rule, match      int
}

// drawMatch draws a match of few kinds.
func drawMatch(t *rapid.T) ranking {
	return ranking{
		kind:   rapid.SampledFrom([]string{"Exact", "PathPrefix", "RegularExpression"}).Draw(t, "path"),
		path:   rapid.SampledFrom([]string{"/a", "/b", "/a/b"}).Draw(t, "value"),
		method: rapid.Bool().Draw(t, "method"), headers: rapid.IntRange(0, 2).Draw(t, "headers"),
		queries: rapid.IntRange(0, 1).Draw(t, "queries"),
	}
}

// text returns the match as a route has it.
func (r ranking) text() string {
	list := func(n int) string {
		return "[" + strings.Join([]string{"{name: x, value: x}", "{name: z, value: z}"}[:n], ", ") + "]"
	}
	method := ""
	if r.method {
		method = "method: GET, "
	}
	return fmt.Sprintf("{path: {type: %s, value: %s}, %sheaders: %s, queryParams: %s}", r.kind, r.path, method, list(r.headers),
		list(r.queries))
}

// before is the order of the Gateway API.
func (r ranking) before(o ranking) int {
	rank := map[string]int{"Exact": 2, "PathPrefix": 1, "RegularExpression": 0}
	number := map[bool]int{true: 1}
	return cmp.Or(
		cmp.Compare(rank[o.kind], rank[r.kind]), cmp.Compare(len(o.path), len(r.path)), cmp.Compare(number[o.method], number[r.method]),
		cmp.Compare(o.headers, r.headers), cmp.Compare(o.queries, r.queries), r.of.first(o.of), cmp.Compare(r.rule, o.rule),
		cmp.Compare(r.match, o.match),
	)
}

// TestPrecedence: the matches of all routes of a host are tried in the order that the Gateway API lays down, in
// whichever order the routes come. A match that another route has before gets a finding and a condition.
func TestPrecedence(t *testing.T) {
	lost := 0
	rapid.Check(t, func(rt *rapid.T) {
		world := objects{}
		world.put(t, `apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: gw}
spec: {gatewayClassName: istio, listeners: [{name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}]}`)
		routes, all := map[named]string{}, []ranking{}
		for _, n := range drawNames(rt, "HTTPRoute") {
			var rules []string
			for i := range rapid.IntRange(1, 2).Draw(rt, "rules") {
				var matches []string
				for j := range rapid.IntRange(1, 3).Draw(rt, "matches") {
					m := drawMatch(rt)
					matches = append(matches, m.text())
					m.of, m.rule, m.match = n, i, j
					all = append(all, m)
				}
				rules = append(rules, "{matches: ["+strings.Join(matches, ", ")+"]}")
			}
			routes[n] = "{parentRefs: [{name: edge, namespace: gw}], hostnames: [a.org], rules: [" + strings.Join(rules, ", ") + "]}"
		}
		out := deliver(rt, t, world, routes)

		slices.SortFunc(all, ranking.before)
		var got, want []string
		seen, losses := map[string]named{}, map[string]bool{}
		for _, m := range all {
			want = append(want, fmt.Sprintf("%s.%s.%d %s", m.of.namespace, m.of.name, m.rule, m.path))
			if first, is := seen[m.text()]; !is {
				seen[m.text()] = m.of
			} else if first != m.of {
				losses[fmt.Sprintf("HTTPRoute %s spec.rules[%d].matches[%d] HTTPRoute %s", m.of, m.rule, m.match, first)] = true
			}
		}
		for _, d := range out.Objects {
			if spec, is := d.Object.Spec.(*networkingv1.VirtualService); is {
				for _, h := range spec.Http {
					uri := h.Match[0].Uri
					got = append(got, h.Name+" "+cmp.Or(uri.GetExact(), uri.GetPrefix(), uri.GetRegex()))
				}
			}
		}
		if !slices.Equal(got, want) {
			rt.Fatalf("%v\nis tried in this order\n%s\nwant\n%s", routes, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		found, conflicted := map[string]bool{}, map[string]bool{}
		for _, f := range out.Findings {
			if first, _, is := strings.Cut(f.Message, ", which is "); is {
				found[f.Object+" "+f.Field+" "+first] = true
				conflicted[f.Object] = true
			}
		}
		if !maps.Equal(found, losses) {
			rt.Fatalf("%v\nfound %v\nwant %v", routes, found, losses)
		}
		for _, s := range out.Statuses {
			if s.Of.Kind == kinds.HTTPRoute {
				has := reasonsOf(s.Value["parents"].([]any)[0])
				if (has["Conflicted"] == "True MatchConflict") != conflicted[s.Of.String()] || has["Accepted"] != "True Accepted" {
					rt.Fatalf("%v: the conditions of %s are %v", routes, s.Of, has)
				}
			}
		}
		lost += len(losses)
	})
	if lost == 0 {
		t.Error("no match was lost")
	}
}

// TestConnections: each connection of a listener is the oldest route's that is for it, and of one age that of the first
// by "namespace/name", in whichever order the routes come. Where TLS is terminated they are told apart by server name
// as well, the listener's other names lead nowhere, and a TCPRoute is for what no TLSRoute names.
func TestConnections(t *testing.T) {
	given := certificate(t, "gw")
	listeners := map[string]uint32{"tcp": 90, "pass": 443, "term": 444}
	rapid.Check(t, func(rt *rapid.T) {
		world := objects{}
		const all = "allowedRoutes: {namespaces: {from: All}}"
		world.put(t, given+`
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: gw}
spec:
  gatewayClassName: istio
  listeners:
  - {name: tcp, port: 90, protocol: TCP, `+all+`}
  - {name: pass, port: 443, protocol: TLS, hostname: "*.org", tls: {mode: Passthrough}, `+all+`}
  - {name: term, port: 444, protocol: TLS, hostname: "*.org", tls: {mode: Terminate, certificateRefs: [{name: c}]}, `+all+"}")
		routes, want := map[named]string{}, map[string]named{}
		for _, n := range drawNames(rt, "TCPRoute", "TLSRoute") {
			possible := []string{"tcp", "term"}
			hosts, spec := []string{"*.org"}, ""
			if n.kind == "TLSRoute" {
				possible = []string{"pass", "term"}
				hosts = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"*.org", "a.org", "b.org", "*.a.org"}), 1, 3, rapid.ID).Draw(rt, "hosts")
				spec = `hostnames: ["` + strings.Join(hosts, `", "`) + `"], `
			}
			var parents []string
			for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(possible), 1, 2, rapid.ID).Draw(rt, "listeners") {
				parents = append(parents, "{name: edge, namespace: gw, sectionName: "+name+"}")
				for _, host := range hosts {
					if name == "tcp" {
						host = "*"
					}
					at := fmt.Sprintf("%d %s", listeners[name], host)
					if first, taken := want[at]; !taken || n.first(first) < 0 {
						want[at] = n
					}
				}
			}
			routes[n] = fmt.Sprintf("{parentRefs: [%s], %srules: [{backendRefs: [{name: w, port: 80}]}]}", strings.Join(parents, ", "), spec)
		}
		out := deliver(rt, t, world, routes)

		servers := map[string]*networkingv1.Gateway{}
		for _, d := range out.Objects {
			if g, is := d.Object.Spec.(*networkingv1.Gateway); is {
				servers[d.Object.Namespace+"/"+d.Object.Name] = g
			}
		}
		got := map[string]named{}
		for _, d := range out.Objects {
			vs, is := d.Object.Spec.(*networkingv1.VirtualService)
			if !is {
				continue
			}
			for _, name := range vs.Gateways {
				s := servers[name].Servers[0]
				hosts := s.Hosts
				if len(vs.Tls) > 0 {
					hosts = vs.Tls[0].Match[0].SniHosts
				}
				for _, host := range hosts {
					at := fmt.Sprintf("%d %s", s.Port.Number, strings.TrimPrefix(host, "*/"))
					if got[at] != (named{}) {
						rt.Fatalf("%v: two have %s", routes, at)
					}
					got[at] = named{d.Origin.Kind.Name, d.Origin.Namespace, d.Origin.Name, d.Object.Created.Unix()}
				}
			}
		}
		if !maps.Equal(got, want) {
			rt.Fatalf("%v\nconnections are those of %v\nwant %v", routes, got, want)
		}
	})
}
