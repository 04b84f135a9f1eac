// Package scope computes what proxies may see: which services, VirtualServices and DestinationRules are visible in a
// namespace, by exportTo, by Sidecar resources and by Istio's precedence.
//
// An Index is made for each Snapshot from the previous Index, at a cost proportional to the changes. Its Dirty lists
// what may have changed, and so invalidates what was made from the previous Index. A Scope is the view of one namespace
// and Sidecar. It stores no lists; it resolves hosts by the Index. Both are immutable apart from their caches. The
// package does not depend on Envoy.
//
// services.go, destinationrules.go and virtualservices.go each have the tables of their objects, the look-ups in them,
// and the rules for invalidating resources when a row changes. placement.go says whether any configuration depends on
// the location of proxies.
//
// # Guarantees
//
//   - The Dirty of a commit names the hosts, listeners and cohorts that it affects: [TestCompare]. Delegates are in
//     force if they are exported to the namespace of the VirtualService that names them: [TestDelegatesAreExported].
//   - The Sidecar and the DestinationRule of a workload, and the effect of exportTo, are those of istiod:
//     [TestSidecarFor], [TestRulePrecedence], [TestExportTo], [TestSidecarHosts].
package scope
