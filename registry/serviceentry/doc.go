// Package serviceentry is the registry of ServiceEntries. Each host of an entry is a service. Its endpoints are inline,
// or the host itself (DNS), or the ready pods and WorkloadEntries of its namespace that the entry selects. Update
// passes in these workloads, from the registry that derives them.
//
// A Registry is a state machine that is used by one goroutine; it starts none. Its result depends on the objects that
// exist, and never on the order or the batches in which they arrived.
//
// Entries of one namespace may share a host. The oldest defines the service. An entry of the same resolution adds its
// addresses, endpoints, and ports with further numbers. An entry of another resolution adds nothing.
//
// The package does not write addresses back to the API server. Allocated addresses depend on the hosts alone, so every
// replica allocates the same.
//
// serviceEntryVisibility of the mesh limits exportTo. If the labels of a namespace change, its services are made again.
//
// # Guarantees
//
//   - Allocated addresses depend on the hosts alone, so replicas agree: [TestAllocationDependsOnlyOnTheHosts].
//     Addresses that istiod assigned stay: [TestAssignedAddressesStay]. All are in the ranges that are set:
//     [TestAllocatedAddressesAreInRange].
//   - An entry is visible at most where the labels of its namespace allow: [TestVisibility],
//     [TestHistoriesWithVisibility].
package serviceentry
