package gatewayapi

import (
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/derive"
)

// Names of controllers in GatewayClasses.
const (
	controller         = names.GatewayController
	meshController     = names.MeshController             // of waypoints
	unmanagedGateways  = names.UnmanagedGatewayController // of Gateways that stand for those of another network
	defaultClass       = "istio"                          // counts without an object too
	ownClass           = "istiod-lite"                    // as above
	unservedController = "is served by no part of this control plane"
)

// knownClasses returns the controllers of the classes that count without an object, by their names.
func knownClasses() map[string]string {
	return map[string]string{defaultClass: controller, ownClass: controller, "istio-waypoint": meshController, "istio-remote": unmanagedGateways}
}

// takeClass takes the change of a GatewayClass.
func (r *run) takeClass(c kinds.Change) {
	is, status := knownClasses()[c.Name], derive.Part{}
	if c.Object != nil {
		if is = string(c.Object.Spec.(*gatewayv1.GatewayClass).Spec.ControllerName); is == controller {
			status.Statuses = []*derive.Status{classStatus(c.Object)}
		}
	}
	r.put(c.Key, status)
	if is != r.classes[c.Name] {
		r.classes[c.Name] = is
		r.changed(cell{theController, kinds.Key{Kind: kinds.GatewayClass, Name: c.Name}})
	}
	if is == "" {
		delete(r.classes, c.Name)
	}
}

// served reports whether a Gateway is this controller's, by its class. One of another controller is left to that.
func (l *lookups) served(o *kinds.Object) (is bool, found []diag.Diagnostic) {
	name := string(gatewaySpec(o).GatewayClassName)
	switch by := l.controller(name); by {
	case controller:
		return true, nil
	case "":
		found = append(found, finding(o, diag.Warning, "GatewayClass", "spec.gatewayClassName", "add a GatewayClass of that name, or name "+defaultClass, "there is no GatewayClass "+name+": nothing of the Gateway is served"))
	case meshController, unmanagedGateways:
		found = append(found, finding(o, diag.Warning, "GatewayClass", "spec.gatewayClassName", "name "+defaultClass, "a Gateway of controller "+by+" "+unservedController))
	}
	return false, found
}
