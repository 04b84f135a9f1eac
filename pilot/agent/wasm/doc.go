// Package wasm fetches the Wasm modules that extensions name by a URL, over HTTP or from a registry of OCI images, and
// stores them in files that Envoy loads. Envoy itself has no client for registries, and does not start without a
// module.
//
// A module must match its hash, if the extension has one, and must be a Wasm module of bounded size. Modules are stored
// in a folder under their hashes. Settings of an extension that are for the agent, such as credentials, are removed.
// Addresses of this host and of cloud metadata services are refused (see package safe).
//
//   - wasm.go: replaces extensions, and manages the folder
//   - fetch.go: HTTP and OCI
//   - unpack.go: extracts the module from a download
//
// A fetch is retried a few times if the server is unavailable. If the module is still missing, the extension's last
// good version stays in force or, if there is none, it is replaced by a filter that allows or denies all requests, as
// its failure policy says. So other extensions of the response can change. Package xdsproxy tries again later.
//
// A Cache owns its folder. It starts no goroutine: callers wait, and one of the callers for a module fetches it.
//
// # Guarantees
//
//   - A module is fetched once, by HTTP or from a registry, and fields for the agent alone are taken out of the
//     extension: [TestReplace]. A file with another hash, that is too large, is not a module, or is on this host, is
//     refused: [TestRefused]. Without its module an extension does what failStrategy says: [TestFailurePolicy].
//   - No error shows a password: [TestCredentials]. Unused modules make room: [TestKept].
package wasm
