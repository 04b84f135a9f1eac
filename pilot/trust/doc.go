// Package trust publishes what workloads verify certificates with: ConfigMaps of the same content in many namespaces,
// such as istio-ca-root-cert, which holds the roots of the mesh.
//
//   - publisher.go: a Publisher does that in one cluster, while this replica is elected.
//   - reconciler.go: the reconciler of the ConfigMaps of one name, which package controllers runs.
//
// It writes ConfigMaps that are missing or differ. Other keys of a ConfigMap stay. It writes nothing that is equal, so
// watches of other clients get no event. A namespace that cannot be written backs off and delays no other namespace.
//
// State: none, beside the clients of a term and what is watched: of each ConfigMap the label and one text, which equal
// ConfigMaps share.
//
// # Guarantees
//
//   - Every selected namespace has the roots, whatever another client does to its ConfigMap. A ConfigMap with the
//     right roots is not written, and a namespace that cannot be written delays no other: [TestPublisher],
//     [deploy/e2e/kube.TestRoots].
package trust
