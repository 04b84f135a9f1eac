// Package trace follows a request through what proxies are sent, as Envoy does: the listener and its filter chain, the
// virtual host, the route that wins and why each other one lost, the cluster with its endpoints and its TLS, and on the
// receiving side the chain that takes the connection and the policies that allow or deny the request.
//
// It reads resources as they are encoded for the wire, and nothing else but the names of objects that the caller gives
// it. The source of a resource is read from the resource's own metadata. The package is pure and has no state.
//
// # Guarantees
//
//   - Corners of routes, chains and forwarded requests are followed as Envoy follows them: [TestMatches], [TestChains],
//     [TestForwarded].
//   - An answer depends on each filter and each secret that is not evaluated: [TestUnknownFilters], [TestSecrets].
package trace
