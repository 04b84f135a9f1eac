// Package jwks reads sets of public keys by which tokens are verified: JSON Web Key Sets, RFC 7517. What is fetched has
// public keys alone, whatever a set had in it.
//
//   - jwks.go: sets that were fetched.
//   - inline.go: sets that users wrote for Envoy, and the set by which no token is valid.
//   - source.go: where a set is fetched from. A Fetcher does the I/O.
//
// # Guarantees
//
//   - A key set that a user wrote is sent without private keys: [TestInline], [FuzzInline], [FuzzParse].
//   - No token can be signed for the key set that replaces a missing one: [TestNobody].
//   - A hostile discovery document is refused: [FuzzDiscovery].
package jwks
