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
// State: a Reconciler's. Its maps of ConfigMaps are under its lock, and the rest is owned by the goroutine that
// reconciles. Start runs the source of ConfigMaps.
//
// # Guarantees
//
//   - The chart's template and the template of Istio's chart make the objects that istiod applies for a Gateway:
//     [TestIstiod], [deploy/e2e/charts.TestGatewaysAsIstio] (make compat).
//   - Parameters without a meaning are refused, with what to write instead: [TestParameters]. Gateways of other
//     classes, revisions and addresses are left alone: [TestWhichGateways]. ListenerSets add ports where their Gateway
//     allows it: [TestListenerSets].
//   - One replica creates what Gateways need, follows changes, repairs it, deletes it when it is no longer needed, and
//     never replaces an object of another owner: [deploy/e2e/kube.TestGateways].
//   - Nothing is watched before there is a Gateway to deploy: [pilot/bootstrap.TestNothingIsWatchedWithoutGateways].
//   - Nothing is written before the parameters have been read: [TestParametersAreFollowed]. An object of another
//     controller blocks no other object: [TestForeignObjectsStay]. An object that another client changes back is
//     written at most once a second: [TestNoHotLoop]. The version of the API server is requested with backoff:
//     [TestVersionIsAskedForWithBackoff].
package deployment
