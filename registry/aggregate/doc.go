// Package aggregate combines registries into one: a Kubernetes registry for each cluster, and one of ServiceEntries,
// which may select the workloads of all clusters.
//
// A change is passed to the registry of the cluster in its key. A cluster's registry exists from its first object to
// its last. ServiceEntries are read from the server's own cluster alone.
//
// Clusters that have a service of the same namespace and host share one merged service. It is the own cluster's
// version, or else that of the first cluster by ID. It has the service accounts and endpoints of all clusters. It also
// holds each cluster's version, because addresses and target ports differ by cluster.
//
// If Kubernetes and ServiceEntries have the same service, it is that of Kubernetes with the endpoints of both.
//
// A Registry and the registries in it are used by one goroutine. They start none.
//
// # Guarantees
//
//   - Changes one by one have the same result as all at once: [TestHistories], [registry/kube.TestHistories],
//     [registry/serviceentry.TestHistories].
//   - A cluster that came and went leaves the other clusters as they were: [TestClusterComesAndGoes]. A service of
//     several clusters keeps the version of each cluster: [TestTranscripts].
package aggregate
