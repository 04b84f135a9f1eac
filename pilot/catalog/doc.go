// Package catalog holds the one list of features. The order of the list is the order of what features add to resources
// on the wire. It is the only package that imports features.
//
//   - catalog.go: the list, and the kinds that it reads.
//   - unsupported.go: what has no effect, joined from all features.
package catalog
