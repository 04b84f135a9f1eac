// Package feature is the contract of features. A feature is a folder below this one: it says which kinds of objects it
// reads, which of them apply to a workload, what it does not support, and what it adds to resources.
//
//   - feature.go: what a feature declares.
//   - hooks.go: the hooks that it may fill, and what they are given. A hook that is nil adds nothing.
//   - selection.go: the objects that apply to a workload, as a part of a key, and how objects select workloads.
//   - settings.go: translates settings that the mesh configuration and objects have in common.
//   - unsupported.go: findings about fields that a feature does not support.
//
// Package catalog holds the one list of features. Package cohort selects objects for proxies, and package translate
// calls the hooks; neither knows a feature by name. The package is pure, and features
// hold nothing but caches.
//
// # A new feature
//
// Take RequestAuthentication, which validates tokens: it is the feature jwt. Its folder pilot/feature/jwt has these
// files:
//
//   - doc.go: what the feature does, and what is in which file.
//   - jwt.go: New, which returns the Feature. Kinds is RequestAuthentication. Part is InboundPart, because the policies
//     change what takes calls for the workload. Select is Policies, for the root namespace and the workload's own, with
//     its own matches: Matches, of policies that have rules. Of the hooks it fills HTTPFilters, and FiltersReadOf,
//     which must keep every field of a Chain that the filters depend on.
//   - filter.go: what the hook does. It makes a filter of Chain.Selection, and none where that is empty or the
//     Direction is Outbound. A larger feature has a file for each part of the translation.
//   - unsupported.go: findings about fields that the filter does not follow, by Unsupported and a table of fields.
//   - golden_test.go: one call of featuretest.Run.
//   - testdata/*.txtar: an input each. Write the input, run the test with -update, and read what it adds.
//
// In pilot/catalog, catalog.go gets a line, jwt.New(o.FetchKeys), at its place in the order of filters. Only an option
// of a feature is named elsewhere: by catalog.Options, and by whoever sets it. What is watched, keys of cohorts,
// invalidation and findings follow from what it declares.
//
// What such a feature needs of I/O, as the keys behind a jwksUri, is a fact (package facts). Facts returns those that
// an object needs. A hook asks its Selection for one by Selection.Fact, and must do what is safe where that returns
// nil. It gets facts in no other way: then the keys of what it builds hold them, and a new answer reaches the proxies
// that it concerns. A Select that depends on a fact asks the Reader.
//
// Beside the Secrets and ConfigMaps that objects name, only kinds of Istio reach a Snapshot: what objects of the
// Gateway API mean is for a stage (pilot/derive).
//
// # A new hook
//
// A feature that no hook serves needs one more: a field of Hooks in hooks.go, with what it is given; its call in
// pilot/translate/hooks; and its caller in cds, eds, lds or rds. A builder's result depends on its key alone, so what a
// hook is given must be in that key: Capabilities, Selections, facts. The keys of listeners and clusters hold
// Selections. A hook for endpoints or routes takes them from cohort.Client, where ClientPart puts them. A hook for
// routes also needs a field for its Selection in virtualHostKey or headerKey (rds/routes.go). Where several features'
// objects are selected by the nearest that applies, as PeerAuthentications are, mtls/select.go shows how; Policies
// selects all that match.
//
// # The order of filters
//
// The order of features in pilot/catalog is the order of their filters on the wire. The router, or the TCP proxy, comes
// last. A feature with filters at several places, such as one for WasmPlugins with their phases, is several lines of
// the catalog, as authz.NewCustom and authz.New are. A filter whose place depends on the others is put there by
// ConnectionManager of the hook Listeners, which is given all of them.
//
// # Tests that know every kind
//
// A new kind needs more for two tests: [pilot/translate.TestEveryKindIsGenerated] wants it in the generated worlds and
// in testdata/pool.yaml, and [pilot/translate.TestNoFieldIsIgnored] wants objects in testdata/fields in which each
// field has an effect. A kind that the server does not know yet needs an entry in api/kinds and checks in
// galley/validation first.
package feature
