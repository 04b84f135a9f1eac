// Package catalog holds the list of all features and the list of all stages. The order of features is the order in
// which they add to resources on the wire. It is the only package that imports features and stages.
//
// - catalog.go: the lists, the kinds that features read and the facts that they need.
// - unsupported.go: fields without effect, joined from all features.
//
// # Guarantees
//
//   - Each kind has one reader, or is known to have none, which is a finding: [TestEveryKindHasOneReader]. The chart
//     grants access to the kinds that sources read: [deploy/charts.TestRules].
//   - Fields without effect are declared by the feature that reads the kind: [TestUnsupported]. An exclusive hook is
//     filled by one feature: [TestOneFeatureHasAnExclusiveHook].
package catalog
