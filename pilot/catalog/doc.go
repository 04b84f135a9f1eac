// Package catalog holds the one list of features. The order of the list is the order of what features add to resources
// on the wire. It is the only package that imports features.
//
//   - catalog.go: the list, the kinds that it reads and the facts that it needs.
//   - unsupported.go: what has no effect, joined from all features.
package catalog
