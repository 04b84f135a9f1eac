// Package envoyfilter tests with real Envoys what EnvoyFilters make of their configuration: the filters, routes and
// clusters that patches add, change and remove, and that a patch which cannot be applied costs itself alone.
//
//   - mesh_test.go: the mesh, and how pods call.
//   - patches_test.go: what the patches do.
package envoyfilter
