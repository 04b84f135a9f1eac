// Package trust publishes the roots with which workloads verify certificates: ConfigMaps with equal content in many
// namespaces, such as istio-ca-root-cert, or one ClusterTrustBundle.
//
//   - publisher.go: a Publisher publishes them in one cluster, while this replica is elected.
//   - reconciler.go: the reconciler of the ConfigMaps with one name, which package controllers runs.
//   - bundle.go: the reconciler of a ClusterTrustBundle.
//
// It writes ConfigMaps that are missing or differ, and keeps their other keys. It never writes equal content, so that
// watches of other clients get no event. A namespace that cannot be written backs off and does not delay others.
//
// State: the clients of a term, and of each watched ConfigMap the label and one text, which equal ConfigMaps share.
//
// # Guarantees
//
//   - Every selected namespace has the roots, whatever another client does to its ConfigMap. A ConfigMap with the
//     right roots is not written, and a namespace that cannot be written delays no other: [TestPublisher],
//     [deploy/e2e/kube.TestRoots]. Control planes whose ConfigMaps have different names publish them beside each other:
//     [pilot/bootstrap.TestControlPlanesWithOtherConfigMaps].
//   - With a ClusterTrustBundle, only ConfigMaps that exist are written, because running pods may have mounted them:
//     [TestExistingMaps], [pilot/controllers.TestReconcilers].
package trust
