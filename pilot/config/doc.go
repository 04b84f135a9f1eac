// Package config holds the words in which sources of configuration hand on what they read: a Handler that takes Changes, when two objects are the same,
// and in which order changes go.
//
// It reads nothing itself: the sources are the packages below it, such as file. It has no state and runs no goroutine.
package config
