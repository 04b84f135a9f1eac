// Package extension tests with real Envoys what TrafficExtensions and WasmPlugins do to traffic: Lua and WebAssembly
// modules change requests to the workloads that the objects select, in the order of priorities, and no others.
//
//   - mesh_test.go: the mesh, and how the client calls.
//   - extension_test.go: what the extensions do.
//   - module_test.go: a WebAssembly module, made byte by byte.
package extension
