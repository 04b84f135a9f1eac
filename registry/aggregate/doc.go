// Package aggregate combines registries into one: a Kubernetes registry for each cluster, and one of ServiceEntries,
// which may select the workloads of all clusters.
//
// A change is passed to the registry of the cluster in its key. A cluster's registry exists as long as the cluster has
// objects. ServiceEntries are read only from the server's own cluster.
//
// Clusters that have a service of the same namespace and host share one merged service. It is the own cluster's
// version, or else the version of the first cluster by ID. It has the service accounts and endpoints of all clusters.
// It also holds each cluster's version, because addresses and target ports differ by cluster.
//
// If Kubernetes and ServiceEntries define the same service, the Kubernetes service is used, with the endpoints of both.
//
// With the Multi-Cluster Services API, package mcs decides which endpoints of a cluster are for proxies of all
// clusters, and which services have a host in clusterset.local.
//
// A Registry and the registries in it are used by one goroutine. They start none.
//
// # Guarantees
//
//   - The result is the same if changes arrive one by one or in one batch: [TestHistories],
//     [registry/kube.TestHistories], [registry/serviceentry.TestHistories].
//   - Adding and removing a cluster leaves the other clusters unchanged: [TestClusterComesAndGoes]. A service of
//     several clusters keeps the version of each cluster: [TestTranscripts].
//   - Without the Multi-Cluster Services API its objects change nothing: [TestSetsAreOff].
package aggregate
