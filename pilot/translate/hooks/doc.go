// Package hooks calls the hooks that features fill (pilot/feature), in the order of the catalog. Builders of all types
// ask it what features add to a resource, and how connections are secured.
//
// It keeps the filters that chains share (filters.go). Its methods are pure otherwise. Those that take a Reader are
// called where keys are made, all others where resources are built.
package hooks
