// Package hooks calls the hooks that features fill (pilot/feature), in the order of the catalog. Builders of all types
// call it for what features add to a resource, and for the TLS of connections.
//
// It caches the filters that chains share (filters.go). Its methods are pure otherwise. Methods that take a Reader are
// called when keys are made, all others when resources are built.
package hooks
