// Package kube is the registry of Kubernetes: from Service, EndpointSlice, Pod, Node, Namespace and WorkloadEntry
// objects, whatever source they came from, it derives services, endpoints and workloads.
//
// A Registry is a state machine owned by one goroutine; it starts none. Its answer depends on the objects that are
// there and never on the order or batches in which they came. The work of a batch is proportional to what it touches: a
// pod leads to the slices that name it, a slice to its service.
//
// Where no controllers write EndpointSlices, as in a directory, a Service with a selector and no slice selects the pods
// itself; the first slice ends that. A Service also selects the WorkloadEntries of its namespace. An endpoint whose
// slice names a pod that has not come yet is parked until it does.
//
// Services that a label, or the mesh's list of networks, calls gateways between networks are told by Gateways, with the
// addresses at which they are reached from outside.
//
// It reads no client, does not filter by visibility, locality or network, and does not merge clusters.
package kube
