// Package deployment reconciles what Gateways of the Gateway API need: for each Gateway of a class of this control
// plane a ServiceAccount, a Deployment and a Service, and where its parameters ask for them a HorizontalPodAutoscaler
// and a PodDisruptionBudget. It also creates the GatewayClasses of this control plane that are missing.
//
//   - plan.go: which Gateways get objects, their names and ports, and what the template reads; pure.
//   - parameters.go: the ConfigMaps of spec.infrastructure.parametersRef, and the ones with a class's defaults, merged
//     into what the template makes; pure.
//   - options.go: what a Reconciler needs.
//   - reconciler.go: the Reconciler of Gateways: what it watches, and when it reconciles which Gateway.
//   - objects.go: how objects are written: by server-side apply, owned by their Gateway, so that they go with it.
//   - classes.go: the ClassReconciler of GatewayClasses.
//
// An object of such a name without the label gateway.istio.io/managed belongs to another controller, and is left alone:
// a user who takes the label off an object takes the object over. A field that is written here is written again after
// another client has changed it. Fields that nothing here writes, such as replicas, stay as they are.
//
// Gateways, classes and ListenerSets come from the World. Affected says which Gateways a commit concerns.
//
// # Guarantees
//
//   - What another client undoes is written again at most once a second [TestNoHotLoop].
//   - The version of the API server is asked for with backoff [TestVersionIsAskedForWithBackoff].
//   - An object of another controller is never written, and holds up no other object [TestForeignObjectsStay].
//   - Nothing is written before the parameters of the Gateway have been read [TestParametersAreFollowed].
//
// State: a Reconciler's. Its maps of ConfigMaps are under its lock, and the rest is owned by the goroutine that
// reconciles. Start runs the source of ConfigMaps.
package deployment
