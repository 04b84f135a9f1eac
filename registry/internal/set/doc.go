// Package set holds sets that mostly have one member or a few. A mesh has thousands of them, and a map for each would
// take hundreds of bytes.
//
// A set must not be changed while it is being iterated. The package has no state and starts no goroutine.
package set
