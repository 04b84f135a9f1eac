// Package mesh holds the mesh-wide configuration: MeshConfig and MeshNetworks, their defaults, strict parsing with
// positions, and validation.
//
// The package reads no file and watches nothing: its caller reads the bytes, calls Parse, and keeps the old Config if a
// finding is an Error. A Config is immutable, so any goroutine may read it. The package has no state.
//
// # Guarantees
//
//   - A proxy's own settings replace the mesh's defaults field by field, and are freed with their last user:
//     [TestSettings], [TestSettingsAreForgotten]. A value that Envoy would reject is refused: [TestBadSettings].
//   - A text of the mesh configuration is read as Istio reads it: [TestYAML], [TestPresentAndEmpty]. Only the parts of
//     a broken text that open nothing are left out: [TestSalvage].
//   - serviceEntryVisibility narrows exportTo and never widens it: [TestEntryVisibility].
//   - A log format has only commands that Envoy knows: [TestFormats].
package mesh
