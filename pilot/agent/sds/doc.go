// Package sds hands secrets to Envoy on a Unix socket: the secret discovery service, state of the world.
//
// New listens in the place of a socket that a process before left behind; only the agent's own user may connect.
// Serving reports whether another server, such as an agent of SPIRE, listens already: then there is nothing to start. A
// secret that is not there yet is sent once it is. What Envoy rejects is logged and counted; the next version is sent
// again.
//
// Each stream has two goroutines, and its own state. The server keeps none.
//
// # Guarantees
//
//   - Envoy is sent the secrets that it names, when they exist and when they change, and a rejected one once it has
//     changed. Only the agent's user may connect: [TestStream]. A socket that was left behind is replaced, and another
//     server found: [TestSockets].
package sds
