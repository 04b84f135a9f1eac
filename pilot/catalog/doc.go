// Package catalog holds the one list of features, and that of stages. The order of the list is the order of what
// features add to resources on the wire. It is the only package that imports features and stages.
//
//   - catalog.go: the lists, the kinds that features read and the facts that they need.
//   - unsupported.go: what has no effect, joined from all features.
//
// # Guarantees
//
//   - Each kind has one reader, or is known to have none, which is a finding: [TestEveryKindHasOneReader]. The chart
//     grants what sources read: [deploy/charts.TestRules].
//   - Fields without effect are declared by the feature that reads the kind: [TestUnsupported]. An exclusive hook is
//     filled by one feature: [TestOneFeatureHasAnExclusiveHook].
package catalog
