// Package deployment brings what Gateways of the Gateway API need to run: for each Gateway of a class of this control
// plane a ServiceAccount, a Deployment and a Service, and where its parameters ask for them a HorizontalPodAutoscaler
// and a PodDisruptionBudget. It also creates the GatewayClasses of this control plane where they are missing.
//
//   - plan.go: which Gateways get objects, their names and ports, and what the template reads; pure.
//   - parameters.go: the ConfigMaps of spec.infrastructure.parametersRef, and those with a class's defaults, merged
//     into what the template makes; pure.
//   - objects.go: what the API server has of the objects, and how they are written: by server-side apply, owned by
//     their Gateway, so that they go with it.
//   - watch.go: follows the objects, and the webhook configurations that are tags of the revision.
//   - controller.go: the loop; findings. classes.go: GatewayClasses.
//
// An object of such a name without the label gateway.istio.io/managed is another's, and is left alone; who takes the
// label off an object takes it over. What somebody else changes of the fields that are written here is written again.
// Fields that nothing here writes, such as replicas, stay as they are.
//
// Gateways, classes and ListenerSets come from the injected look-ups, which are asked again after Notice.
//
// State: a Controller's, under its lock. Run is to run at one replica at a time. It has a goroutine for each of the
// kinds that it follows beside its own, once there is a Gateway, and that of the source of ConfigMaps.
package deployment
