// Package clusters tests the server on real API servers with real Envoys under load: a move between a directory and an
// API server, changes by the API, and two API servers that are one mesh, where one comes, goes and dies; calls from one
// network to another; and services that a cluster exports. A request that fails anywhere fails the test.
//
// It has no code of its own besides its tests, which run as an ordinary user inside the namespaces of package pods.
//
// # Guarantees
//
//   - A call between networks is mTLS from sidecar to sidecar: [TestNetworks].
//   - Clients call pods of another cluster only while that cluster exports their Service, and a host in
//     clusterset.local leads to the pods of all clusters that export it. ServiceExports are created: [TestSets].
package clusters
