// Package set holds sets that mostly have one member or a few: a mesh has thousands of them, and each as a map would take hundreds of bytes.
//
// A set belongs to whoever has it, who must not change it while looping over it. The package has no state and runs no goroutine.
package set
