// Package catalog holds the one list of features. The order of the list is the order of what features add to resources
// on the wire. It is the only package that imports features.
package catalog
