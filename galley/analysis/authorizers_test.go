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

// TestCollectors: a provider of a Telemetry whose service cannot be reached is a finding at its name.
func TestCollectors(t *testing.T) {
	const objects = `apiVersion: v1
kind: Service
metadata: {name: collector, namespace: b}
spec: {ports: [{name: grpc, port: 4317}]}
---
apiVersion: telemetry.istio.io/v1
kind: Telemetry
metadata: {name: t, namespace: a}
spec: {accessLogging: [{providers: [{name: NAME}]}]}
`
	m, found := mesh.Parse("mesh.yaml", []byte(`extensionProviders:
- {name: there, envoyOtelAls: {service: collector.b.svc.cluster.local, port: 4317}}
- {name: port, envoyOtelAls: {service: collector.b.svc.cluster.local, port: 0}}
- {name: gone, envoyHttpAls: {service: gone.b.svc.cluster.local, port: 4317}}
- {name: file, envoyFileAccessLog: {path: /dev/stdout}}
`))
	if m == nil || len(found) != 1 || !strings.Contains(found[0].String(), `0 is not a port: nothing reaches provider "port"; write`) {
		t.Fatal(found)
	}
	for provider, want := range map[string]string{
		"there": "", "file": "", "prometheus": "",
		"port": `which has no port 0: proxies send nothing to it`,
		"gone": `provider "gone" is the service gone.b.svc.cluster.local, which does not exist: proxies send nothing to it; create it, or`,
	} {
		var got []string
		for _, d := range Run(decode(t, strings.Replace(objects, "NAME", provider, 1)), Options{Domain: "cluster.local", Mesh: m, Advice: true}) {
			got = append(got, d.String())
		}
		if text := strings.Join(got, "\n"); (want == "") != (text == "") || !strings.Contains(text, want) || len(got) > 1 {
			t.Errorf("%s: %s, want %s", provider, text, want)
		}
	}
}

// TestSeveralAuthorizers: two policies of action CUSTOM that name different authorizers for one workload are a finding.
func TestSeveralAuthorizers(t *testing.T) {
	policy := func(ns, name, provider, of string) string {
		return "---\napiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: " + name + ", namespace: " + ns +
			"}\nspec: {action: CUSTOM, provider: {name: " + provider + "}, rules: [{}]" + of + "}\n"
	}
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: a, labels: {app: x, version: v1}}\n" +
		"spec: {containers: [{name: c, image: i}]}\n"
	const byApp, byVersion = ", selector: {matchLabels: {app: x}}", ", selector: {matchLabels: {version: v1}}"
	const target = ", targetRefs: [{kind: Service, name: s}]"
	m := mesh.Default()
	m.RootNamespace = "istio-system"
	for name, c := range map[string]struct{ objects, want string }{
		"one namespace": {policy("a", "one", "o", "") + policy("a", "two", "t", ""),
			`a/two: spec.provider.name: AuthorizationPolicy a/one has the authorizer "o" for the same workloads`},
		"the mesh": {policy("istio-system", "one", "o", "") + policy("a", "two", "t", byApp),
			`AuthorizationPolicy istio-system/one has the authorizer "o" for the same workloads`},
		"one workload": {policy("a", "one", "o", byApp) + policy("a", "two", "t", byVersion),
			`has the authorizer "o" for Pod a/p: a workload has one authorizer`},
		"some and all":      {policy("a", "one", "o", byApp) + policy("a", "two", "t", ""), `has the authorizer "o" for Pod a/p`},
		"one target":        {policy("a", "one", "o", target) + policy("a", "two", "t", target), `has the authorizer "o" for the same workloads`},
		"the same":          {policy("a", "one", "o", "") + policy("a", "two", "o", byApp), ""},
		"other workloads":   {policy("a", "one", "o", byApp) + policy("a", "two", "t", ", selector: {matchLabels: {app: z}}"), ""},
		"another namespace": {policy("a", "one", "o", "") + policy("b", "two", "t", ""), ""},
	} {
		var got []string
		for _, d := range Run(decode(t, pod+c.objects), Options{Domain: "cluster.local", Mesh: m}) {
			if d.Code == codeAuthorizers {
				got = append(got, d.String())
			}
		}
		if c.want == "" && len(got) > 0 || c.want != "" && (len(got) != 1 || !strings.Contains(got[0], c.want)) {
			t.Errorf("%s: %v, want %s", name, got, c.want)
		}
	}
}
