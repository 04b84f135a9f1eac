// Package xdstest has helpers for the tests of package xds and the packages below it: a Translator with the resources
// of a test, resources and nodes for it, and the size of the heap.
package xdstest
