// Package kube is the registry of Kubernetes. It derives services, endpoints and workloads from Service, EndpointSlice,
// Pod, Node, Namespace and WorkloadEntry objects of any source.
//
// A Registry is a state machine that is used by one goroutine; it starts none. Its result depends on the objects that
// exist, and never on the order or the batches in which they arrived. The work of a batch is proportional to what it
// affects: a pod marks the slices that name it as dirty, and a slice marks its service.
//
// If no controllers write EndpointSlices, as in a directory, a Service without a slice selects the pods itself until
// its first slice arrives. A Service also selects the WorkloadEntries of its namespace. An endpoint whose slice names
// an unknown pod is pending until the pod arrives.
//
// Gateways returns the addresses of gateways between networks. A label, or the mesh's list of networks, marks a Service
// as such a gateway.
//
// The package uses no client. It does not filter by visibility, locality or network, and does not merge clusters.
//
// # Guarantees
//
//   - Endpoints follow their slices, pods, nodes and annotations: [TestTranscripts], [TestExportTo],
//     [TestWithControllersServicesSelectNoPods].
package kube
