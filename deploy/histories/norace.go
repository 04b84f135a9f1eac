//go:build !race

package histories

// Raced reports whether the race detector watches.
const Raced = false
