// Package xdstest is what the tests of package xds and those below it share: a Translator that returns what a test
// wrote down, resources and nodes for it, and the size of the heap.
package xdstest
