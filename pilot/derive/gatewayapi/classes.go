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
	meshController     = names.MeshController             // for waypoints
	unmanagedGateways  = names.UnmanagedGatewayController // for Gateways that represent the gateways of another network
	ownClass           = "istiod-lite"                    // known without a GatewayClass object
	unservedController = "is not served by this control plane"
)

// knownClasses returns the controllers of the classes that are known without an object, by class.
func (o Options) knownClasses() map[string]string {
	return map[string]string{o.Class: o.Controller, ownClass: o.Controller, "istio-waypoint": meshController,
		"istio-remote": unmanagedGateways}
}

// takeClass handles a change of a GatewayClass.
func (r *run) takeClass(c kinds.Change) {
	is, status := r.o.knownClasses()[c.Name], derive.Part{}
	if c.Object != nil {
		if is = string(c.Object.Spec.(*gatewayv1.GatewayClass).Spec.ControllerName); is == r.o.Controller {
			status.Statuses = []*derive.Status{classStatus(c.Object)}
		}
	}
	r.put(c.Key, status)
	if is != r.classes[c.Name] {
		r.classes[c.Name] = is
		r.changed(cell{cellController, kinds.Key{Kind: kinds.GatewayClass, Name: c.Name}})
	}
	if is == "" {
		delete(r.classes, c.Name)
	}
}

// served reports whether a Gateway belongs to this controller, by its class.
func (l *lookups) served(o *kinds.Object) (is bool, found []diag.Diagnostic) {
	name := string(gatewaySpec(o).GatewayClassName)
	switch by := l.controller(name); by {
	case l.run.o.Controller:
		return true, nil
	case "":
		found = append(found, finding(o, diag.Warning, "GatewayClass", "spec.gatewayClassName",
			"add a GatewayClass of that name, or name "+l.run.o.Class, "there is no GatewayClass "+name+": the Gateway is not served"))
	case meshController, unmanagedGateways:
		found = append(found, finding(o, diag.Warning, "GatewayClass", "spec.gatewayClassName", "name "+l.run.o.Class,
			"a Gateway of controller "+by+" "+unservedController))
	}
	return false, found
}
