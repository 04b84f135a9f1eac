// Package feature is the contract of features. A feature is a folder below this one: it declares which kinds of objects
// it reads, which of them apply to a workload, what it does not support, and what it adds to resources.
//
// - feature.go: what a feature declares.
// - hooks.go: the hooks that it may fill, and their arguments. A nil hook adds nothing.
// - selection.go: the objects that apply to a workload, as a part of a key, and how objects select workloads.
// - settings.go: translates settings that the mesh configuration and objects have in common.
// - unsupported.go: findings about fields that a feature does not support.
//
// Package catalog holds the list of all features. Package cohort selects objects for proxies, and package translate
// calls the hooks. Neither knows a feature by name. The package is pure, and the only state of features is caches.
//
// # A new feature
//
// Take RequestAuthentication, which validates tokens: it is the feature jwt. Its folder pilot/feature/jwt has these
// files:
//
//   - doc.go: what the feature does, and the purpose of each file.
//   - jwt.go: New, which returns the Feature. Kinds is RequestAuthentication. Part is InboundPart, because the policies
//     change how connections to the workload are handled. Select is Policies, for the root namespace and the workload's
//     own, with its own matches: Matches, of policies that have rules. It fills the hooks HTTPFilters, and
//     FiltersReadOf, which must keep every field of a Chain that the filters depend on.
//   - filter.go: the hook's function. It makes a filter from Chain.Selection, and none if that is empty or the
//     Direction is Outbound. A larger feature has a file for each part of the translation.
//   - unsupported.go: findings about fields that the filter does not implement, by Unsupported and a table of fields.
//   - golden_test.go: one call of featuretest.Run.
//   - testdata/*.txtar: one input each. Write the input, run the test with -update, and read the output.
//
// In pilot/catalog, catalog.go gets a line, jwt.New(o.FetchKeys), at its place in the order of filters. Nothing else
// names a feature, except for its options: catalog.Options, and the code that sets them. Watches, keys of cohorts,
// invalidation and findings follow from what it declares.
//
// External data for a feature, such as the keys behind a jwksUri, is a fact (package facts). Facts returns the facts
// that an object needs. A hook gets one by Selection.Fact, and must do what is safe if that returns nil. It gets facts
// in no other way: so the keys of what it builds hold them, and a new answer reaches the proxies that it concerns. A
// Select that depends on a fact asks the Reader.
//
// Beside the Secrets and ConfigMaps that objects name, only kinds of Istio reach a Snapshot. A stage translates objects
// of the Gateway API (pilot/derive).
//
// # A new hook
//
// A feature for which there is no hook needs a new one: a field of Hooks in hooks.go, with its arguments; its call in
// pilot/translate/hooks; and its caller in cds, eds, lds or rds. The result of a builder depends only on its key, so
// the arguments of a hook must be in that key: Capabilities, Selections, facts. The keys of listeners and clusters hold
// Selections. A hook for endpoints or routes takes them from cohort.Client, where ClientPart puts them. A hook for
// routes also needs a field for its Selection in virtualHostKey or headerKey (rds/routes.go). If the nearest of several
// features' objects applies, as with PeerAuthentications, see mtls/select.go. Policies selects all that match.
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
// Two tests need more for a new kind: [pilot/translate.TestEveryKindIsGenerated] needs it in the generated worlds and
// in testdata/pool.yaml, and [pilot/translate.TestNoFieldIsIgnored] needs objects in testdata/fields in which each
// field has an effect. A kind that the server does not know yet needs an entry in api/kinds and checks in
// galley/validation first.
package feature
