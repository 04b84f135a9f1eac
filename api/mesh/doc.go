// Package mesh holds the mesh-wide configuration: MeshConfig and MeshNetworks, their defaults, strict parsing with
// positions, and validation.
//
// It reads no file and watches nothing: whoever has the bytes calls Parse and keeps the old Config when findings say
// Error. A Config is never changed once made, so any goroutine may read it. The package has no state.
package mesh
