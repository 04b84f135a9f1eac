// Package config is the contract of the sources of configuration: Source, the Handler that takes its Changes, the order
// of changes, and when two objects are equal. Findings holds what is wrong with the objects of a source.
//
// The sources are the packages below it, such as file. This package reads nothing and runs no goroutine.
package config
