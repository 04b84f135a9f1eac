// Package sds serves secrets to Envoy on a Unix socket, with the secret discovery service in its state-of-the-world
// variant.
//
// New replaces a stale socket. Only the agent's own user may connect. Serving reports whether another server, such as
// an agent of SPIRE, already listens; the agent then starts none. A secret that is not available yet is sent when it
// is. Rejections by Envoy are logged and counted, and the next version of the secret is sent as usual.
//
// Each stream has two goroutines and its own state. The server has no other state.
//
// # Guarantees
//
//   - Envoy is sent the secrets that it names, when they exist and when they change, and a rejected one once it has
//     changed. Only the agent's user may connect: [TestStream]. A socket that was left behind is replaced, and another
//     server found: [TestSockets].
package sds
