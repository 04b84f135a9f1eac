// Package upstream connects the agent to a server of the control plane by gRPC: over TLS with roots from a file or from
// the system, with a client certificate where there is one, and with a token that is read again for each call.
//
// An Upstream owns its connection. Run is its one goroutine: it replaces the connection when the roots change, so that
// a server that is no longer trusted loses its streams. Files are read whole and bounded; what is in them is never
// logged.
//
// # Guarantees
//
//   - Roots that cannot be read whole are refused: [TestBrokenRoots].
package upstream
