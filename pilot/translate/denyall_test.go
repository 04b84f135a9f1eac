package translate_test

import (
	"strings"
	"testing"

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
			if d, ok := translate.Unsupported(o.Object); ok && strings.Contains(d.Message, "refused") {
				found++
			}
		}
		if found != 1 {
			t.Errorf("%s: %d findings say so", c.policy, found)
		}
	}
}
