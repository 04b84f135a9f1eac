// Package scope computes what proxies may see: which services, VirtualServices and DestinationRules are visible in a
// namespace, by exportTo, by Sidecar resources and by Istio's precedence.
//
// An Index is made for each Snapshot, from the Index before it, at a cost proportional to the changes. Its Dirty lists
// what may have changed, and so invalidates what was made from the Index before. A Scope is the view of one namespace
// and Sidecar. It stores no lists; it resolves hosts by the Index. Both are immutable apart from their caches. The
// package knows no Envoy.
//
// services.go, destinationrules.go and virtualservices.go each have the tables of their objects, the look-ups in them,
// and the rules of what a changed row makes dirty. placement.go says whether anything depends on where proxies run.
//
// # Guarantees
//
//   - The Dirty of a commit names hosts, listeners and cohorts that it affects: [TestCompare]. Delegates are in force
//     where they are exported to the namespace of the VirtualService that names them: [TestDelegatesAreExported].
//   - The Sidecar and the DestinationRule of a workload, and what exportTo hides, are those of istiod:
//     [TestSidecarFor], [TestRulePrecedence], [TestExportTo], [TestSidecarHosts].
package scope
