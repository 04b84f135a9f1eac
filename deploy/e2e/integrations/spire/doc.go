// Package spire tests sidecars whose certificates come from SPIRE: two trust domains, each with a real server and a
// real agent of SPIRE, which attests Envoys by their paths. The control plane has no part in the certificates.
//
// # Guarantees
//
//   - Sidecars call with the certificates of SPIRE alone, and policies see these identities: [TestSPIRE/Identities].
//     A workload that SPIRE does not know gets no certificate, from any server: [TestSPIRE/Unregistered].
//   - No request fails while certificates of 40 seconds are renewed, or while the agent or the server of SPIRE is
//     killed and starts again: [TestSPIRE/Renewal], [TestSPIRE/Restarts]. Nor while a root is replaced in both trust
//     domains: [TestSPIRE/RootIsReplaced].
//   - Workloads of two trust domains reach each other if the mesh names the other domain as an alias and both entries
//     federate with the other domain, and not without one of them: [TestSPIRE/Federation].
package spire
