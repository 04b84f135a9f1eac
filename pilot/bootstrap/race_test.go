//go:build race

package bootstrap

// raced reports whether the race detector watches, with which everything takes several times as long.
const raced = true
