package gatewayapi_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
)

// TestLosers: of routes for the same connections the oldest has them, and a finding of each other one says so.
func TestLosers(t *testing.T) {
	const parents = `apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: gw}
spec: {gatewayClassName: istio,
  listeners: [{name: tcp, port: 90, protocol: TCP}, {name: pass, port: 443, protocol: TLS, tls: {mode: Passthrough}}]}
---
apiVersion: v1
kind: Service
metadata: {name: w, namespace: gw}
spec: {ports: [{port: 80}, {port: 90}]}
`
	const toListener, toService, toPort = "{name: edge, sectionName: %s}", `{group: "", kind: Service, name: w}`,
		`{group: "", kind: Service, name: w, port: 90}`
	for _, c := range []struct {
		what, kind, parent, first, second string
		want                              []string
	}{
		{"one TCP listener", "TCPRoute", fmt.Sprintf(toListener, "tcp"), "", "", []string{"all connections of listener tcp of Gateway gw/edge"}},
		{"one server name", "TLSRoute", fmt.Sprintf(toListener, "pass"), "hostnames: [a.org, b.org], ", "hostnames: [b.org, c.org], ",
			[]string{"the connections for b.org of listener pass of Gateway gw/edge"}},
		{"others", "TLSRoute", fmt.Sprintf(toListener, "pass"), "hostnames: [a.org], ", "hostnames: [b.org], ", nil},
		{"one Service, TCP", "TCPRoute", toService, "", "",
			[]string{"all connections to port 80 of w.gw.svc.cluster.local", "all connections to port 90 of w.gw.svc.cluster.local"}},
		{"one port, TCP", "TCPRoute", toPort, "", "", []string{"all connections to port 90 of w.gw.svc.cluster.local"}},
		{"one Service, TLS", "TLSRoute", toPort, "hostnames: [a.org], ", "hostnames: [A.org, b.org], ",
			[]string{"the connections for a.org to port 90 of w.gw.svc.cluster.local"}},
	} {
		world, stage := objects{}, newStage()
		world.put(t, parents)
		for i, hosts := range []string{c.first, c.second} {
			world.put(t, fmt.Sprintf("apiVersion: gateway.networking.k8s.io/v1\nkind: %s\nmetadata: {name: r%d, namespace: gw}\nspec: "+
				"{parentRefs: [%s], %srules: [{backendRefs: [{name: w, port: 80}]}]}", c.kind, 1-i, c.parent, hosts))
			for key, o := range world {
				if key.Name == fmt.Sprint("r", 1-i) {
					o.Created = time.Unix(int64(i), 0)
				}
			}
		}
		reason := "ListenerConflict"
		if c.kind == "TLSRoute" {
			reason = "HostnameConflict"
		}
		losers := func() (list []string) {
			out := stage.Run(t, world, mesh.Default())
			for _, s := range out.Statuses {
				if s.Of.Kind.Name != c.kind {
					continue
				}
				for _, p := range s.Value["parents"].([]any) {
					has := reasonsOf(p)
					if has["Accepted"] != "True Accepted" || (has["Conflicted"] == "True "+reason) != (s.Of.Name == "r0" && len(world) == 4 &&
						len(c.want) > 0) {
						t.Errorf("%s: the conditions of %s are %v", c.what, s.Of, has)
					}
				}
			}
			for _, f := range out.Findings {
				if _, what, is := strings.Cut(f.Message, "which is older, has "); is {
					if f.Object != c.kind+" gw/r0" || !strings.HasPrefix(f.Message, c.kind+" gw/r1") {
						t.Errorf("%s: %s", c.what, f)
					}
					list = append(list, strings.TrimSuffix(what, ": this one gets none there"))
				}
			}
			slices.Sort(list)
			return list
		}
		if got := losers(); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
		for key := range world {
			if key.Name == "r1" {
				delete(world, key)
			}
		}
		if got := losers(); len(got) > 0 {
			t.Errorf("%s: %q when the older one is gone", c.what, got)
		}
	}
}

// TestLostPort: where the parents of a route are ports of one Service, only the port at which it loses something has
// the condition.
func TestLostPort(t *testing.T) {
	const text = `apiVersion: v1
kind: Service
metadata: {name: w, namespace: gw}
spec: {ports: [{port: 80}, {port: 90}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: %[1]s
metadata: {name: a, namespace: gw}
spec: {parentRefs: [{group: "", kind: Service, name: w, port: 90}], rules: [{backendRefs: [{name: w, port: 80}]}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: %[1]s
metadata: {name: b, namespace: gw}
spec: {parentRefs: [{group: "", kind: Service, name: w, port: 80}, {group: "", kind: Service, name: w, port: 90}],
  rules: [{backendRefs: [{name: w, port: 80}]}]}`
	for kind, reason := range map[*kinds.Kind]string{kinds.HTTPRoute: "MatchConflict", kinds.TLSRoute: "HostnameConflict",
		kinds.TCPRoute: "ListenerConflict"} {
		parents := statusOf(derived(t, fmt.Sprintf(text, kind.Name)), kind, "b")["parents"].([]any)
		for i, want := range []string{"", "True " + reason} {
			if got := reasonsOf(parents[i])["Conflicted"]; got != want {
				t.Errorf("%s, parent %d: %q, want %q", kind.Name, i, got, want)
			}
		}
	}
}

// reasonsOf returns the conditions of a parent of a route by type: the status and the reason.
func reasonsOf(parent any) map[string]string {
	all := map[string]string{}
	for _, c := range parent.(map[string]any)["conditions"].([]any) {
		c := c.(map[string]any)
		all[c["type"].(string)] = fmt.Sprint(c["status"], " ", c["reason"])
	}
	return all
}

// TestAncestors: the status of a BackendTLSPolicy names each Gateway with routes to its targets, also by ListenerSets.
func TestAncestors(t *testing.T) {
	world, stage := objects{}, newStage()
	world.put(t, `apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: gw}
spec: {gatewayClassName: istio, allowedListeners: {namespaces: {from: All}}, listeners: [{name: any, port: 80, protocol: HTTP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: ListenerSet
metadata: {name: more, namespace: a}
spec: {parentRef: {name: edge, namespace: gw}, listeners: [{name: x, port: 81, protocol: HTTP}]}
---
apiVersion: v1
kind: Service
metadata: {name: w, namespace: a}
spec: {ports: [{port: 443}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: BackendTLSPolicy
metadata: {name: p, namespace: a}
spec: {targetRefs: [{group: "", kind: Service, name: w}], validation: {hostname: w.org, wellKnownCACertificates: System}}`)
	ancestors := func() (list []string) {
		for _, s := range stage.Run(t, world, mesh.Default()).Statuses {
			if s.Of.Kind == kinds.BackendTLSPolicy {
				for _, a := range s.Value["ancestors"].([]any) {
					ref := a.(map[string]any)["ancestorRef"].(map[string]any)
					list = append(list, fmt.Sprint(ref["kind"], " ", ref["name"]))
				}
			}
		}
		return list
	}
	if got, want := ancestors(), []string{"Service w"}; !slices.Equal(got, want) {
		t.Errorf("without a route %q, want %q", got, want)
	}
	world.put(t, `apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: r, namespace: a}
spec: {parentRefs: [{kind: ListenerSet, name: more}], rules: [{backendRefs: [{name: w, port: 443}]}]}`)
	if got, want := ancestors(), []string{"Service w", "Gateway edge"}; !slices.Equal(got, want) {
		t.Errorf("with a route of a ListenerSet %q, want %q", got, want)
	}
}
