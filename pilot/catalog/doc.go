// Package catalog holds the one list of features, and that of stages. The order of the list is the order of what
// features add to resources on the wire. It is the only package that imports features and stages.
//
//   - catalog.go: the lists, the kinds that features read and the facts that they need.
//   - unsupported.go: what has no effect, joined from all features.
package catalog
