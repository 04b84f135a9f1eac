// Package config defines the interface of the sources of configuration: Source, the Handler of its changes, the order
// of changes, and equality of objects. Findings holds the findings about the objects of a source.
//
// The sources are in packages below this one, such as file. This package reads nothing and runs no goroutine.
package config
