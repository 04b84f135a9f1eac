// Package jwks parses sets of public keys that verify tokens: JSON Web Key Sets, RFC 7517. A fetched set is reduced to
// its public keys.
//
//   - jwks.go: fetched sets.
//   - inline.go: sets that users wrote for Envoy, and the set that accepts no token.
//   - source.go: the origin of a set. A Fetcher does the I/O.
//
// # Guarantees
//
//   - A key set that a user wrote is sent without private keys: [TestInline], [FuzzInline], [FuzzParse].
//   - No token can be signed for the key set that replaces a missing one: [TestAcceptsNone].
//   - A hostile discovery document is refused: [FuzzDiscovery].
package jwks
