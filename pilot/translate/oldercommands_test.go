package translate_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
)

const olderCommandsWorld = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: x, namespace: a}
spec: {hosts: [x.example, plain.example], resolution: STATIC,
  endpoints: [{address: 1.2.3.4}], ports: [{number: 80, name: http, protocol: HTTP}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: x, namespace: a}
spec:
  hosts: [x.example]
  http:
  - headers: {request: {set: {of-route: "route %SPAN_ID%"}}, response: {add: {of-response: "response %SPAN_ID%"}}}
    route:
    - {destination: {host: x.example}, weight: 50, headers: {request: {add: {of-weight: "weight %SPAN_ID%"}}}}
    - {destination: {host: plain.example}, weight: 50}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: plain, namespace: a}
spec: {hosts: [plain.example], http: [{headers: {request: {set: {plain: "%PROTOCOL%"}}}, route: [{destination: {host: plain.example}}]}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: providers, namespace: a}
spec: {hosts: [ask.example, otel.example], resolution: STATIC,
  endpoints: [{address: 1.2.3.5}], ports: [{number: 80, name: http, protocol: HTTP}]}
---
apiVersion: telemetry.istio.io/v1
kind: Telemetry
metadata: {name: t, namespace: a}
spec: {tracing: [{providers: [{name: otel}], randomSamplingPercentage: 1, customTags: {of-tag: {formatter: {value: "tag %SPAN_ID%"}}}}]}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: ask, namespace: a}
spec: {action: CUSTOM, provider: {name: ask}, rules: [{}]}
---
apiVersion: v1
kind: Service
metadata: {name: p, namespace: a}
spec: {clusterIP: 10.0.0.1, selector: {app: p}, ports: [{name: http, port: 80}]}
---
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: a, labels: {app: p}}
spec: {containers: [{name: p, image: p}]}
status: {podIP: 10.1.0.9, phase: Running, conditions: [{type: Ready, status: "True"}]}
`

const olderCommandsMesh = `
extensionProviders:
- name: otel
  opentelemetry: {service: otel.example, port: 80, http: {path: /v1, headers: [{name: of-tracer, value: "tracer %SPAN_ID%"}]}}
- name: ask
  envoyExtAuthzHttp: {service: ask.example, port: 80, includeAdditionalHeadersInCheck: {of-ask: "ask %SPAN_ID%"}}
`

// TestOlderCommands: where a header or a tag has a command that an older Envoy does not have, such an Envoy is sent a
// dash for it. Other Envoys are sent the command, and what has no such command is shared.
func TestOlderCommands(t *testing.T) {
	m, findings := mesh.Salvage(mesh.Default(), "mesh", []byte(olderCommandsMesh))
	for _, f := range findings {
		if !strings.Contains(f.Message, "they write - for it") {
			t.Fatal(f)
		}
	}
	w, tr := newWorldOf(t, snapshot.Options{Mesh: m}), newTranslator(10)
	s := w.apply(objects(t, "world.yaml", []byte(olderCommandsWorld))...)
	plain := map[*envoy.Resource]bool{}
	for _, c := range []struct {
		capabilities node.Capabilities
		want, not    string
	}{{everything | node.RecentCommands, "%SPAN_ID%", " -\""}, {everything &^ node.RecentCommands, "-", "SPAN_ID"}} {
		p := node.Proxy{
			Type: node.Sidecar, ID: "p.a", Name: "p", Namespace: "a", Domain: "a.svc.cluster.local", IPs: []string{"10.1.0.9"},
			Cluster: "Kubernetes",
			Labels:  map[string]string{"app": "p"}, MeshID: "cluster.local", Capabilities: c.capabilities,
		}
		var all strings.Builder
		for _, kind := range []string{"lds", "rds"} {
			for _, r := range sent(t, tr, s, &p)[kind] {
				all.WriteString(prototext.Format(decode(t, r)))
			}
		}
		for _, of := range []string{"route", "response", "weight", "tag", "tracer", "ask"} {
			if want := `"` + of + " " + c.want + `"`; !strings.Contains(all.String(), want) {
				t.Errorf("no %s", want)
			}
		}
		if strings.Contains(all.String(), c.not) {
			t.Errorf("%q is sent", c.not)
		}
		for h := range sent(t, tr, s, &p)["rds"]["80"].Hosts.All {
			if strings.Contains(h.Name, "/plain.example") {
				plain[h] = true
			}
		}
	}
	if len(plain) != 1 {
		t.Errorf("the virtual host without recent commands has %d resources, want 1", len(plain))
	}
}
