// Package wasm fetches the Wasm modules that extensions name by a URL, and has Envoy load them from files: by HTTP, or
// from a registry of OCI images. Envoy itself would not check what a registry is, nor start without a module.
//
// A module is checked by its hash where the extension says one, and always for being one; its size is bounded. Modules
// are kept in a folder under their hashes. What an extension says for the agent alone, such as credentials, is taken
// out of it. Addresses of the host itself and of a cloud's metadata are not fetched from (see package safe).
//
//   - wasm.go: extensions in, extensions out; the folder
//   - fetch.go: HTTP and OCI
//   - unpack.go: the module inside of what was fetched
//
// A server that is away is asked again a few times. What is still missing then leaves the extension as it was, or is
// replaced by a filter that lets all through or that refuses all, as the extension's failure policy says: other
// extensions of the response change. Package xdsproxy asks for it again later.
//
// A Cache owns its folder. It runs no goroutine: who asks waits, one at a time for each module.
//
// # Guarantees
//
//   - A module is fetched once, by HTTP or from a registry, and fields for the agent alone are taken out of the
//     extension: [TestReplace]. A file with another hash, that is too large, is not a module, or is on this host, is
//     refused: [TestRefused]. Without its module an extension does what failStrategy says: [TestFailurePolicy].
//   - No error shows a password: [TestCredentials]. Unused modules make room: [TestKept].
package wasm
