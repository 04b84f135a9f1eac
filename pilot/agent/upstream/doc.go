// Package upstream connects the agent to a server of the control plane by gRPC: over TLS with roots from a file or from
// the system, with a client certificate if there is one, and with a token that is read again for each call.
//
// An Upstream owns its connection. Its only goroutine is Run, which replaces the connection when the roots change, so
// that a server that is no longer trusted loses its streams. The size of files is bounded. Their content is never
// logged.
//
// # Guarantees
//
//   - Roots that cannot be read whole are refused: [TestBrokenRoots].
package upstream
