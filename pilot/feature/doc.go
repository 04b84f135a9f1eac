// Package feature is the contract of features. A feature is a folder below this one: it says which kinds of objects it
// reads, which of them apply to a workload, what it does not support, and what it adds to resources.
//
//   - feature.go: what a feature declares, and its hooks. A hook that is nil adds nothing.
//   - hooks.go: what hooks are given.
//   - selection.go: the objects that apply to a workload, as a part of a key, and how objects select workloads.
//   - unsupported.go: findings about fields that a feature does not support.
//
// Package catalog holds the one list of features. Package cohort selects objects for proxies, and package translate
// calls the hooks; neither knows a feature by name. The package is pure.
package feature
