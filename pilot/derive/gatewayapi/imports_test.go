package gatewayapi_test

import (
	"fmt"
	"strings"
	"testing"

	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/pilot/derive/derivetest"
	"github.com/istiod-lite/istiod-lite/pilot/derive/gatewayapi"
)

// TestServiceImports has a route to a ServiceImport, with and without hosts of imported services. A grant for Services
// is none for ServiceImports.
func TestServiceImports(t *testing.T) {
	const text = `apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: a}
spec: {gatewayClassName: istio, listeners: [{name: h, port: 80, protocol: HTTP}]}
---
apiVersion: v1
kind: Service
metadata: {name: both, namespace: b}
spec: {ports: [{port: 80}]}
---
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceImport
metadata: {name: both, namespace: b}
spec: {type: ClusterSetIP, ips: [10.0.0.1], ports: [{port: 81}]}
---
apiVersion: v1
kind: Service
metadata: {name: service, namespace: b}
spec: {ports: [{port: 80}]}
---
apiVersion: multicluster.x-k8s.io/v1alpha1
kind: ServiceImport
metadata: {name: import, namespace: b}
spec: {type: ClusterSetIP, ips: [10.0.0.2], ports: [{port: 80}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: ReferenceGrant
metadata: {name: g, namespace: b}
spec: {from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: a}], to: [%s]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: r, namespace: a}
spec:
  parentRefs: [{name: edge}]
  rules: [{backendRefs: [{group: multicluster.x-k8s.io, kind: ServiceImport, namespace: b, name: %s, port: %d}]}]`
	const imports, services = "{group: multicluster.x-k8s.io, kind: ServiceImport}", `{group: "", kind: Service}`
	for _, c := range []struct {
		grant, name    string
		port           int
		hosts          bool
		reason, target string
		findings       string // part of the finding; empty for none
	}{
		{imports, "both", 80, false, "ResolvedRefs", "both.b.svc.cluster.local", ""},
		{imports, "both", 81, true, "ResolvedRefs", "both.b.svc.clusterset.local", ""},
		{imports, "both", 80, true, "ResolvedRefs", "both.b.svc.clusterset.local", "ServiceImport b/both has no port 80"},
		{imports, "import", 80, true, "ResolvedRefs", "import.b.svc.clusterset.local", ""},
		{imports, "import", 80, false, "BackendNotFound", "", "backend(import.b.svc.cluster.local) not found"},
		{imports, "service", 80, false, "ResolvedRefs", "service.b.svc.cluster.local", ""},
		{imports, "service", 80, true, "BackendNotFound", "", "backend(service.b.svc.clusterset.local) not found"},
		{services, "both", 81, true, "RefNotPermitted", "", "missing a ReferenceGrant?"},
		{services, "both", 80, false, "RefNotPermitted", "", "missing a ReferenceGrant?"},
	} {
		name := fmt.Sprintf("%s:%d, hosts %v, grant %s", c.name, c.port, c.hosts, c.grant)
		world := objects{}
		world.put(t, fmt.Sprintf(text, c.grant, c.name, c.port))
		stage := derivetest.New(gatewayapi.New(gatewayapi.Options{Domain: "cluster.local", Limits: limits.Default(), SetHosts: c.hosts}))
		out := stage.Run(t, world, mesh.Default())
		routes := ""
		for _, d := range out.Objects {
			if spec, is := d.Object.Spec.(*networkingv1.VirtualService); is && d.Object.Kind == kinds.VirtualService {
				routes += fmt.Sprint(spec.Http)
			}
		}
		if c.target != "" && !strings.Contains(strings.ReplaceAll(routes, `"`, ""), "host:"+c.target) || routes == "" {
			t.Errorf("%s: routes %s", name, routes)
		}
		if conditions := strings.Join(conditionsOf(statusOf(out, kinds.HTTPRoute, "r")), ", "); !strings.Contains(conditions, c.reason) {
			t.Errorf("%s: conditions %s", name, conditions)
		}
		if found := fmt.Sprint(out.Findings); (c.findings == "") != (len(out.Findings) == 0) || !strings.Contains(found, c.findings) {
			t.Errorf("%s: findings %s", name, found)
		}
	}
}
