package gatewayapi

import (
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// Names of controllers in GatewayClasses.
const (
	controller         = "istio.io/gateway-controller"
	meshController     = "istio.io/mesh-controller"   // of waypoints
	unmanagedGateways  = "istio.io/unmanaged-gateway" // of Gateways that stand for those of another network
	defaultClass       = "istio"                      // counts without an object too
	ownClass           = "istiod-lite"                // as above
	unservedController = "is served by no part of this control plane"
)

// class is a GatewayClass that counts.
type class struct {
	name       string
	controller string
	object     *kinds.Object // nil: there is none, and the name is known
}

func (r *run) readClasses() {
	r.classes = map[string]*class{}
	before := r.stage.classes
	r.stage.classes = r.classes
	keep := func(c class) {
		if old := before[c.name]; old != nil && *old == c {
			r.classes[c.name] = old
		} else {
			r.classes[c.name] = &c
		}
	}
	for name, controller := range map[string]string{defaultClass: controller, ownClass: controller, "istio-waypoint": meshController, "istio-remote": unmanagedGateways} {
		keep(class{name: name, controller: controller})
	}
	for _, o := range r.byKind[kinds.GatewayClass] {
		c := class{o.Name, string(o.Spec.(*gatewayv1.GatewayClass).Spec.ControllerName), o}
		keep(c)
		if c.controller == controller {
			r.classStatus(o)
		}
	}
}

// classOf returns the class of a Gateway if it is this controller's. A Gateway of another controller is left to that.
func (r *run) classOf(o *kinds.Object, name string) *class {
	c := r.classes[name]
	switch {
	case c == nil:
		r.found(finding(o, diag.Warning, "GatewayClass", "spec.gatewayClassName", "add a GatewayClass of that name, or name "+defaultClass, "there is no GatewayClass "+name+": nothing of the Gateway is served"))
		return nil
	case c.controller == meshController || c.controller == unmanagedGateways:
		r.found(finding(o, diag.Warning, "GatewayClass", "spec.gatewayClassName", "name "+defaultClass, "a Gateway of controller "+c.controller+" "+unservedController))
		return nil
	case c.controller != controller:
		return nil
	}
	return c
}
