// Package deployment reconciles the objects of Gateways of the Gateway API: for each Gateway of a class of this control
// plane a ServiceAccount, a Deployment and a Service, and if its parameters request them a HorizontalPodAutoscaler and
// a PodDisruptionBudget. It also creates missing GatewayClasses of this control plane.
//
//   - plan.go: which Gateways get objects, their names and ports, and the input of the template; pure.
//   - parameters.go: the ConfigMaps of spec.infrastructure.parametersRef, and the ConfigMaps with a class's defaults,
//     merged into the template's objects; pure.
//   - options.go: the dependencies of a Reconciler.
//   - reconciler.go: the Reconciler of Gateways: what it watches, and when it reconciles which Gateway.
//   - objects.go: writes objects by server-side apply, owned by their Gateway, so that they are deleted with it.
//   - classes.go: the ClassReconciler of GatewayClasses.
//
// An object with the right name but without the label gateway.istio.io/managed belongs to another controller and is not
// changed. A user who removes the label takes the object over. If another client changes a field that is written here,
// it is written again. Other fields, such as replicas, keep their values.
//
// The World provides Gateways, classes and ListenerSets. Affected returns the Gateways that a commit concerns.
//
// State: the maps of ConfigMaps of a Reconciler are guarded by its lock; its other state is owned by the goroutine that
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
