package gatewayapi_test

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/derive/derivetest"
	"github.com/istiod-lite/istiod-lite/pilot/derive/gatewayapi"
)

// TestClientCertificate: the proxies of a Gateway show its certificate where a BackendTLSPolicy secures connections,
// and its status says why they cannot.
func TestClientCertificate(t *testing.T) {
	recorded, err := txtar.ParseFile("testdata/istiod/10-listenerset.txtar")
	must.Succeed(t, err)
	world, stage := objects{}, derivetest.New(gatewayapi.New(gatewayapi.Options{Domain: "cluster.local"}))
	world.put(t, strings.Split("\n"+string(recorded.Files[0].Data), "\n---\n")[1]+` # gw/cert
---
apiVersion: v1
kind: Service
metadata: {name: b, namespace: a}
spec: {ports: [{port: 443}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: BackendTLSPolicy
metadata: {name: p, namespace: a}
spec: {targetRefs: [{group: "", kind: Service, name: b}], validation: {wellKnownCACertificates: System, hostname: b.org}}`)
	for ref, want := range map[string]string{
		"{name: cert}":                   "ResolvedRefs",
		"{name: none}":                   "InvalidClientCertificateRef",
		"{name: cert, kind: ConfigMap}":  "InvalidClientCertificateRef",
		"{name: cert, group: odd.org}":   "InvalidClientCertificateRef",
		"{name: cert, namespace: other}": "RefNotPermitted",
	} {
		world.put(t, `apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: gw}
spec:
  gatewayClassName: istio
  listeners: [{name: a, port: 80, protocol: HTTP}]
  tls: {backend: {clientCertificateRef: `+ref+`}}`)
		out := stage.Run(t, world, mesh.Default())
		for _, s := range out.Statuses {
			if s.Of.Kind == kinds.KubeGateway && !strings.Contains(fmt.Sprint(s.Value["conditions"]), "reason:"+want+" ") {
				t.Errorf("%s: the status is %v, want %s", ref, s.Value["conditions"], want)
			}
		}
		var shown []string
		for _, d := range out.Objects {
			if e, ok := d.Object.Extra.(*kinds.RuleExtra); ok && e.ClientCertificate != "" {
				spec := d.Object.Spec.(*networkingv1.DestinationRule)
				shown = append(shown, fmt.Sprint(d.Object.Namespace, " ", e.ClientCertificate, " ", spec.Host, " ",
					spec.WorkloadSelector.MatchLabels, " ", spec.TrafficPolicy.Tls.Sni))
			}
		}
		wantShown := "[]"
		if want == "ResolvedRefs" {
			wantShown = "[gw kubernetes-gateway://gw/cert b.a.svc.cluster.local map[gateway.networking.k8s.io/gateway-name:edge] b.org]"
		}
		if fmt.Sprint(shown) != wantShown {
			t.Errorf("%s: %v, want %s", ref, shown, wantShown)
		}
	}
}
