//go:build !race

package histories

// Raced reports whether the race detector is enabled.
const Raced = false
