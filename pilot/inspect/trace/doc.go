// Package trace follows a request through what proxies are sent, as Envoy does: the listener and its chain, the virtual
// host, the route that wins and why each other one lost, the cluster with its endpoints and its TLS, and on the other
// side the chain that takes the connection and the policies that let the request through or not.
//
// It reads resources as they are encoded for the wire, and nothing else: where the source of a resource is known, that
// is what the resource itself says in its metadata. It is pure, and has no state.
//
// # Guarantees
//
//   - Corners of routes, chains and forwarded requests are followed as Envoy follows them: [TestMatches],
//     [TestChains], [TestForwarded].
package trace
