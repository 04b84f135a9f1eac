package translate_test

import (
	"strings"
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"

	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/translate"
)

// TestUntranslatedPoliciesDenyAll: a workload that an authorization policy selects denies everything, and no other
// does.
func TestUntranslatedPoliciesDenyAll(t *testing.T) {
	const service = `{apiVersion: v1, kind: Service, metadata: {name: web, namespace: a}, spec: {selector: {app: web}, ports: [{name: http, port: 80}, {name: tcp, port: 81}]}}`
	for _, c := range []struct {
		policy  string
		refused bool
	}{
		{`{apiVersion: security.istio.io/v1, kind: AuthorizationPolicy, metadata: {name: p, namespace: a}, spec: {action: DENY, rules: [{}]}}`, true},
		{`{apiVersion: security.istio.io/v1, kind: AuthorizationPolicy, metadata: {name: p, namespace: istio-system}, spec: {}}`, true},
		{`{apiVersion: security.istio.io/v1, kind: AuthorizationPolicy, metadata: {name: p, namespace: a}, spec: {selector: {matchLabels: {app: other}}}}`, false},
		{`{apiVersion: security.istio.io/v1, kind: AuthorizationPolicy, metadata: {name: p, namespace: b}, spec: {}}`, false},
		{`{apiVersion: security.istio.io/v1, kind: AuthorizationPolicy, metadata: {name: p, namespace: a}, spec: {action: AUDIT, rules: [{}]}}`, false},
		{`{apiVersion: security.istio.io/v1, kind: RequestAuthentication, metadata: {name: p, namespace: a}, spec: {jwtRules: [{issuer: x, jwks: "{\"keys\": []}"}]}}`, true},
	} {
		w := newWorld(t, mesh.Default())
		s := w.apply(objects(t, "world.yaml", []byte(service+"\n---\n"+c.policy))...)
		tr := newTranslator(0)
		p := proxy(t, []byte(`{"id": "sidecar~10.0.0.1~web-0.a~a.svc.cluster.local", "metadata": {"LABELS": {"app": "web"}}}`))
		for r := range tr.Wildcard(s, tr.ResolveCohort(s, p), envoy.ListenerType).All {
			body := string(r.Body)
			inbound := r.Name == "virtualInbound"
			if got := strings.Contains(body, "envoy.extensions.filters.http.rbac.v3.RBAC"); got != (c.refused && inbound) {
				t.Errorf("%s: %s refuses requests: %v", c.policy, r.Name, got)
			}
			if got := strings.Contains(body, "envoy.extensions.filters.network.rbac.v3.RBAC"); got != (c.refused && inbound) {
				t.Errorf("%s: %s refuses connections: %v", c.policy, r.Name, got)
			}
		}
		found := 0
		for _, o := range objects(t, "p.yaml", []byte(c.policy)) {
			if d := translate.Unsupported(o.Object); len(d) == 1 && strings.Contains(d[0].Message, "refused") {
				found++
			}
		}
		if found != 1 {
			t.Errorf("%s: %d findings say so", c.policy, found)
		}
	}
}

// TestSidecarIngressWithTLSTakesPeersAlone: TLS of a Sidecar's ingress is not supported. Its port takes mutual TLS of the
// mesh then, whatever the mode is: neither plaintext nor connections that nobody checked.
func TestSidecarIngressWithTLSTakesPeersAlone(t *testing.T) {
	const world = `{apiVersion: v1, kind: Service, metadata: {name: web, namespace: a}, spec: {selector: {app: web}, ports: [{name: http, port: 8080}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web-0, namespace: a, labels: {app: web}}, spec: {containers: [{name: web, image: web}]}, status: {podIP: 10.0.0.1}}
---
{apiVersion: security.istio.io/v1, kind: PeerAuthentication, metadata: {name: p, namespace: a}, spec: {mtls: {mode: MODE}}}
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: s, namespace: a}
spec:
  ingress:
    - {port: {number: 8443, name: https, protocol: PROTOCOL}, defaultEndpoint: "127.0.0.1:8080", tls: {mode: SIMPLE, serverCertificate: /c.pem, privateKey: /k.pem}}
    - {port: {number: 8080, name: http, protocol: HTTP}, defaultEndpoint: "127.0.0.1:8080"}
`
	for _, mode := range []string{"PERMISSIVE", "DISABLE", "STRICT"} {
		for _, protocol := range []string{"HTTPS", "HTTP", "TCP"} {
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
			if all[8443] == 0 || plain[8443] != 0 || (plain[8080] == 0) != (mode == "STRICT") {
				t.Errorf("%s %s: of %v chains %v are without TLS of the mesh", mode, protocol, all, plain)
			}
		}
	}
}
