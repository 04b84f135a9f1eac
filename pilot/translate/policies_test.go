package translate_test

import (
	"strings"
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tcprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"

	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// TestPoliciesReachTheirWorkloads: the policies that a workload's own filters are made of are those that select it, or
// target it.
func TestPoliciesReachTheirWorkloads(t *testing.T) {
	const world = `{apiVersion: v1, kind: Service, metadata: {name: web, namespace: a},
  spec: {selector: {app: web}, ports: [{name: http, port: 80}, {name: tcp, port: 81}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web-0, namespace: a, labels: {app: web}},
  spec: {containers: [{name: web, image: web}]}, status: {podIP: 10.0.0.1}}
---
{apiVersion: v1, kind: Pod, metadata: {name: gw-0, namespace: a, labels: {gateway.networking.k8s.io/gateway-name: gw,
  gateway.networking.k8s.io/gateway-class-name: istio}}, spec: {containers: [{name: gw, image: gw}]}, status: {podIP: 10.0.0.2}}
---
{apiVersion: networking.istio.io/v1, kind: Gateway, metadata: {name: gw, namespace: a},
  spec: {selector: {gateway.networking.k8s.io/gateway-name: gw}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ["*"]}]}}
---
{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: entry, namespace: a}, spec: {hosts: [entry.example.com],
  ports: [{number: 82, name: http, protocol: HTTP}], location: MESH_INTERNAL, resolution: STATIC, workloadSelector: {labels: {app: web}}}}
`
	const gatewayAPI = "group: gateway.networking.k8s.io, kind: "
	policy := func(namespace, annotations, spec string) string {
		return "{apiVersion: security.istio.io/v1, kind: AuthorizationPolicy, metadata: {name: p, namespace: " + namespace +
			", annotations: {" + annotations + "}}, spec: {" + spec + "}}"
	}
	request := func(spec string) string {
		return `{apiVersion: security.istio.io/v1, kind: RequestAuthentication, metadata: {name: p, namespace: a, ` +
			`annotations: {istio.io/dry-run: "true"}}, spec: {` + spec + ` jwtRules: [{issuer: x, jwks: "{\"keys\": []}"}]}}`
	}
	for _, c := range []struct {
		policy string
		filter string // which of web and gw have a filter
	}{
		{policy("a", "", "action: DENY, rules: [{}]"), "web gw"},
		{policy("istio-system", "", ""), "web gw"},
		{policy("a", "", "selector: {matchLabels: {app: other}}"), ""},
		{policy("a", "", "selector: {matchLabels: {app: web}}"), "web"},
		{policy("b", "", ""), ""},
		{policy("a", "", "action: AUDIT, rules: [{}]"), "web gw"},
		{policy("a", "", "action: CUSTOM, provider: {name: none}, rules: [{}]"), "web gw"},
		{request(""), "web gw"},

		// There is no object of the Gateway API: the label of its pods is enough.
		{policy("a", "", "targetRefs: [{"+gatewayAPI+"Gateway, name: gw}]"), "gw"},
		{policy("a", "", "targetRef: {"+gatewayAPI+"Gateway, name: gw}"), "gw"},
		{policy("a", "", "targetRefs: [{"+gatewayAPI+"Gateway, name: other}]"), ""},
		{policy("istio-system", "", "targetRefs: [{"+gatewayAPI+"Gateway, name: gw}]"), ""},
		{policy("istio-system", "", "targetRefs: [{"+gatewayAPI+"GatewayClass, name: istio}]"), "gw"},
		{policy("a", "", "targetRefs: [{kind: Service, name: web}]"), "web"},
		{policy("a", "", "targetRefs: [{kind: Service, name: other}]"), ""}, // nobody serves what does not exist
		{policy("istio-system", "", "targetRefs: [{kind: Service, name: web}]"), ""},
		{policy("a", "", "targetRefs: [{kind: Service, name: other}, {group: networking.istio.io, kind: ServiceEntry, name: entry}]"), "web"},
		{policy("a", "", "action: CUSTOM, provider: {name: none}, rules: [{}], targetRefs: [{kind: Service, name: web}]"), "web"},
		{request("targetRefs: [{" + gatewayAPI + "Gateway, name: gw}],"), "gw"},
	} {
		w := newWorld(t, mesh.Default())
		s := w.apply(objects(t, "world.yaml", []byte(world+"\n---\n"+c.policy))...)
		tr := newTranslator(0)
		for name, p := range map[string]struct{ node, listener string }{
			"web": {`{"id": "sidecar~10.0.0.1~web-0.a~a.svc.cluster.local"}`, "virtualInbound"},
			"gw":  {`{"id": "router~10.0.0.2~gw-0.a~a.svc.cluster.local"}`, "0.0.0.0_80"},
		} {
			proxy, found := proxy(t, []byte(p.node)), false
			for r := range tr.Wildcard(s, tr.ResolveCohort(s, proxy), envoy.ListenerType).All {
				body, served := string(r.Body), r.Name == p.listener && strings.Contains(c.filter, name)
				found = found || r.Name == p.listener
				tokens := strings.Contains(c.policy, "RequestAuthentication")
				filter := "envoy.extensions.filters.http.rbac.v3.RBAC"
				if tokens {
					filter = "envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication"
				}
				if got := strings.Contains(body, filter); got != served {
					t.Errorf("%s: %s of %s has a filter for requests: %v", c.policy, r.Name, name, got)
				}
				if got := strings.Contains(body, "envoy.extensions.filters.network.rbac.v3.RBAC"); got != (served && name == "web" && !tokens) {
					t.Errorf("%s: %s of %s has a filter for connections: %v", c.policy, r.Name, name, got)
				}
			}
			if !found {
				t.Fatalf("%s has no %s", name, p.listener)
			}
		}
	}
}

// TestPoliciesReachUnknownWorkloads: a proxy that comes before the news of its Pod has the policies of the services
// that will select it, from its first listener on, and the same ones once the Pod is known.
func TestPoliciesReachUnknownWorkloads(t *testing.T) {
	const world = `{apiVersion: v1, kind: Service, metadata: {name: web, namespace: a},
  spec: {selector: {app: web}, ports: [{name: http, port: 80}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: other, namespace: a}, spec: {selector: {app: other}, ports: [{name: http, port: 80}]}}
---
{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: entry, namespace: a}, spec: {hosts: [entry.example.com],
  ports: [{number: 82, name: http, protocol: HTTP}], location: MESH_INTERNAL, resolution: STATIC, workloadSelector: {labels: {app: web}}}}
---
`
	const pod = `{apiVersion: v1, kind: Pod, metadata: {name: web-0, namespace: a, labels: {app: web}}, ` +
		`spec: {containers: [{name: web, image: web}]}, status: {podIP: 10.0.0.1}}`
	for target, applies := range map[string]bool{
		"kind: Service, name: web": true, "group: networking.istio.io, kind: ServiceEntry, name: entry": true,
		"kind: Service, name: other": false,
	} {
		w, tr := newWorld(t, mesh.Default()), newTranslator(0)
		web := proxy(t, []byte(`{"id": "sidecar~10.0.0.1~web-0.a~a.svc.cluster.local", "metadata": {"LABELS": {"app": "web"}}}`))
		var has cohort.Key
		var revision uint64
		policy := `{apiVersion: security.istio.io/v1, kind: AuthorizationPolicy, ` +
			`metadata: {name: p, namespace: a}, spec: {action: DENY, rules: [{}], targetRefs: [{` + target + `}]}}`
		for _, text := range []string{world + policy, pod} {
			s := w.apply(objects(t, "p.yaml", []byte(text))...)
			tr.Prepare(s)
			if revision == 0 || tr.NeedsReassign(s, web, has, revision) {
				has = tr.ResolveCohort(s, web)
			}
			revision = s.Revision
			for r := range tr.Wildcard(s, has, envoy.ListenerType).All {
				if got := strings.Contains(string(r.Body), "RBAC"); r.Name == "virtualInbound" && got != applies {
					t.Errorf("%s, known %v: %s refuses %v", target, text == pod, r.Name, got)
				}
			}
		}
	}
}

// TestDryRunEndsAndBegins: a policy that becomes a dry run, or ceases to be one, is in force at once, also for a proxy
// that is connected.
func TestDryRunEndsAndBegins(t *testing.T) {
	const workload = `{apiVersion: v1, kind: Pod, metadata: {name: web-0, namespace: a}, ` +
		`spec: {containers: [{name: web, image: web}]}, status: {podIP: 10.0.0.1}}`
	const policy = `{apiVersion: security.istio.io/v1, kind: AuthorizationPolicy, ` +
		`metadata: {name: p, namespace: a, annotations: {istio.io/dry-run: "DRY"}}, spec: {}}`
	w, tr := newWorld(t, mesh.Default()), newTranslator(0)
	web := proxy(t, []byte(`{"id": "sidecar~10.0.0.1~web-0.a~a.svc.cluster.local"}`))
	var has cohort.Key
	var revision uint64
	for _, dry := range []string{"true", "false", "true"} {
		s := w.apply(objects(t, "p.yaml", []byte(workload+"\n---\n"+strings.Replace(policy, "DRY", dry, 1)))...)
		tr.Prepare(s)
		if revision == 0 || tr.NeedsReassign(s, web, has, revision) {
			has = tr.ResolveCohort(s, web)
		}
		revision = s.Revision
		refused, found := false, false
		for r := range tr.Wildcard(s, has, envoy.ListenerType).All {
			if r.Name != names.VirtualInbound {
				continue
			}
			for _, c := range decode(t, r).(*listenerv3.Listener).FilterChains {
				for _, f := range c.Filters {
					if rules := new(tcprbacv3.RBAC); f.GetTypedConfig().UnmarshalTo(rules) == nil {
						found, refused = true, refused || rules.Rules != nil
					}
				}
			}
		}
		if !found || refused != (dry == "false") {
			t.Errorf("a dry run: %s; there is a filter: %v, and it refuses: %v", dry, found, refused)
		}
	}
}

// TestSidecarIngressWithTLSTakesPeersAlone checks that an ingress listener of a Sidecar with TLS settings takes no
// plaintext in any mode: it terminates TLS by its own certificates, or takes mutual TLS of the mesh alone. Without a
// protocol it takes mutual TLS alone, in which HTTP is detected.
func TestSidecarIngressWithTLSTakesPeersAlone(t *testing.T) {
	const world = `{apiVersion: v1, kind: Service, metadata: {name: web, namespace: a},
  spec: {selector: {app: web}, ports: [{name: http, port: 8080}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web-0, namespace: a, labels: {app: web}},
  spec: {containers: [{name: web, image: web}]}, status: {podIP: 10.0.0.1}}
---
{apiVersion: security.istio.io/v1, kind: PeerAuthentication, metadata: {name: p, namespace: a}, spec: {mtls: {mode: MODE}}}
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: s, namespace: a}
spec:
  ingress:
    - {port: {number: 8443, name: https, protocol: PROTOCOL}, defaultEndpoint: "127.0.0.1:8080",
        tls: {mode: SIMPLE, serverCertificate: /c.pem, privateKey: /k.pem}}
    - {port: {number: 8080, name: http, protocol: HTTP}, defaultEndpoint: "127.0.0.1:8080"}
`
	for _, mode := range []string{"PERMISSIVE", "DISABLE", "STRICT"} {
		for _, protocol := range []string{"HTTPS", "HTTP", "TCP", ""} {
			w := newWorld(t, mesh.Default())
			s := w.apply(objects(t, "world.yaml", []byte(strings.NewReplacer("MODE", mode, "PROTOCOL", protocol).Replace(world)))...)
			tr := newTranslator(0)
			p := proxy(t, []byte(`{"id": "sidecar~10.0.0.1~web-0.a~a.svc.cluster.local"}`))
			plain := map[uint32]int{} // chains without TLS of the mesh, by port
			all := map[uint32]int{}
			for r := range tr.Wildcard(s, tr.ResolveCohort(s, p), envoy.ListenerType).All {
				if r.Name != "virtualInbound" {
					continue
				}
				for _, c := range decode(t, r).(*listenerv3.Listener).FilterChains {
					port := c.GetFilterChainMatch().GetDestinationPort().GetValue()
					if all[port]++; c.TransportSocket == nil {
						plain[port]++
					}
				}
			}
			if all[8443] == 0 || protocol == "" && all[8443] != 2 || plain[8443] != 0 || (plain[8080] == 0) != (mode == "STRICT") {
				t.Errorf("%s %s: of %v chains %v are without TLS of the mesh", mode, protocol, all, plain)
			}
		}
	}
}

// A policy that targets a service lets in nothing that the workload's own policies refuse.
func TestTargetedPoliciesOpenNothing(t *testing.T) {
	const world = `{apiVersion: v1, kind: Service, metadata: {name: web, namespace: a},
  spec: {selector: {app: web}, ports: [{name: http, port: 80}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web-0, namespace: a, labels: {app: web}},
  spec: {containers: [{name: web, image: web}]}, status: {podIP: 10.0.0.1}}
---
{apiVersion: security.istio.io/v1, kind: AuthorizationPolicy, metadata: {name: targeted, namespace: a},
  spec: {targetRefs: [{kind: Service, name: web}], rules: [{to: [{operation: {paths: [/opened]}}]}]}}
`
	const own = `{apiVersion: security.istio.io/v1, kind: AuthorizationPolicy, metadata: {name: own, namespace: a`
	for _, c := range []struct {
		other string
		opens bool
	}{
		{"", true},
		{own + "}}", false},
		{own + "}, spec: {rules: [{to: [{operation: {paths: [/mine]}}]}]}}", false},
		{own + "}, spec: {selector: {matchLabels: {app: other}}}}", true},
		{own + "}, spec: {action: DENY, rules: [{to: [{operation: {paths: [/mine]}}]}]}}", true},
		{own + `, annotations: {istio.io/dry-run: "true"}}}`, true},
		{own + "}, spec: {targetRefs: [{kind: Service, name: web}], rules: [{to: [{operation: {paths: [/mine]}}]}]}}", true},
	} {
		w := newWorld(t, mesh.Default())
		s := w.apply(objects(t, "world.yaml", []byte(world+"\n---\n"+c.other))...)
		tr := newTranslator(0)
		p := proxy(t, []byte(`{"id": "sidecar~10.0.0.1~web-0.a~a.svc.cluster.local"}`))
		found := false
		for r := range tr.Wildcard(s, tr.ResolveCohort(s, p), envoy.ListenerType).All {
			if r.Name != "virtualInbound" {
				continue
			}
			found = true
			if got := strings.Contains(string(r.Body), "/opened"); got != c.opens {
				t.Errorf("beside %s it lets requests in: %v", c.other, got)
			}
		}
		if !found {
			t.Fatal("there is no virtualInbound")
		}
	}
}
