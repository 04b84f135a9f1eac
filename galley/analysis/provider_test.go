package analysis

import (
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/api/mesh"
)

// TestAuthorizers: a policy of action CUSTOM whose authorizer cannot be asked is a finding at the name of its provider.
func TestAuthorizers(t *testing.T) {
	const objects = `apiVersion: v1
kind: Service
metadata: {name: hidden, namespace: b, annotations: {networking.istio.io/exportTo: "."}}
spec: {ports: [{port: 9000}]}
---
apiVersion: v1
kind: Service
metadata: {name: authorizer, namespace: b}
spec: {ports: [{port: 9000}]}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: p, namespace: a}
spec:
  action: CUSTOM
  provider: {name: NAME}
  rules: [{}]
`
	m, found := mesh.Parse("mesh.yaml", []byte(`extensionProviders:
- {name: by-grpc, envoyExtAuthzGrpc: {service: authorizer.b.svc.cluster.local, port: 9000}}
- {name: by-http, envoyExtAuthzHttp: {service: b/authorizer.b.svc.cluster.local, port: 9000}}
- {name: elsewhere, envoyExtAuthzHttp: {service: a/authorizer.b.svc.cluster.local, port: 9000}}
- {name: hidden, envoyExtAuthzHttp: {service: hidden.b.svc.cluster.local, port: 9000}}
- {name: port, envoyExtAuthzHttp: {service: authorizer.b.svc.cluster.local, port: 9001}}
- {name: gone, envoyExtAuthzHttp: {service: gone.b.svc.cluster.local, port: 9000}}
`))
	if m == nil {
		t.Fatal(found)
	}
	for provider, want := range map[string]string{
		"by-grpc": "", "by-http": "",
		"by-gprc":    `no ext_authz provider "by-gprc": what the rules match is refused; did you mean "by-grpc"?`,
		"prometheus": `no ext_authz provider "prometheus"`,
		"elsewhere":  `the service a/authorizer.b.svc.cluster.local, which does not exist`,
		"gone":       `the service gone.b.svc.cluster.local, which does not exist: what the rules match is refused`,
		"port":       `which has no port 9001: what the rules match is refused`,
		"hidden":     `is not exported to namespace a: what the rules match is refused; export it`,
	} {
		var got []string
		for _, d := range Run(decode(t, strings.Replace(objects, "NAME", provider, 1)), Options{Domain: "cluster.local", Mesh: m}) {
			if strings.Contains(d.Object, "AuthorizationPolicy") {
				got = append(got, d.String())
			}
		}
		switch {
		case want == "" && len(got) > 0, want != "" && len(got) != 1:
			t.Errorf("%s: %v", provider, got)
		case want != "" && (!strings.Contains(got[0], want) || !strings.Contains(got[0], "spec.provider.name")):
			t.Errorf("%s: %s, want %s", provider, got[0], want)
		}
	}
}
