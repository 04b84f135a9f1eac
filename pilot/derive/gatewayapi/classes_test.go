package gatewayapi_test

import (
	"fmt"
	"testing"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/pilot/derive/derivetest"
	"github.com/istiod-lite/istiod-lite/pilot/derive/gatewayapi"
)

// TestNames serves the classes of the controller that the options name, and the default class that they name, and
// writes statuses by that name. Entries of a controller with the usual name stay.
func TestNames(t *testing.T) {
	const text = `apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: ours}
spec: {controllerName: example.com/mesh}
---
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: theirs}
spec: {controllerName: istio.io/gateway-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {namespace: gw, name: one}
spec: {gatewayClassName: %s, listeners: [{name: http, port: 80, protocol: HTTP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {namespace: gw, name: r}
spec: {parentRefs: [{name: one}]}
status: {parents: [{parentRef: {name: one}, controllerName: istio.io/gateway-controller, conditions: []}]}
`
	for class, served := range map[string]bool{"ours": true, "mesh": true, "istiod-lite": true, "theirs": false, "istio": false} {
		world := objects{}
		world.put(t, fmt.Sprintf(text, class))
		out := derivetest.New(gatewayapi.New(gatewayapi.Options{
			Domain: "cluster.local", Controller: "example.com/mesh", Class: "mesh",
		})).Run(t, world, mesh.Default())
		if statusOf(out, kinds.GatewayClass, "ours") == nil || statusOf(out, kinds.GatewayClass, "theirs") != nil {
			t.Errorf("statuses of classes: %v", out.Statuses)
		}
		status := statusOf(out, kinds.HTTPRoute, "r")
		if (status != nil) != served {
			t.Errorf("class %s: status %v", class, status)
			continue
		}
		if !served {
			continue
		}
		var by []string
		for _, p := range status["parents"].([]any) {
			by = append(by, p.(map[string]any)["controllerName"].(string))
		}
		if fmt.Sprint(by) != "[istio.io/gateway-controller example.com/mesh]" {
			t.Errorf("class %s: controllers in the status: %v", class, by)
		}
	}
}
