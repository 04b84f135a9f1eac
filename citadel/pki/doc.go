// Package pki parses, creates and checks the objects of a certificate authority: certificate requests, keys,
// certificates, and the bundle of a CA. It follows RFC 5280 and the X.509-SVID standard of SPIFFE.
//
//   - request.go: certificate requests, of which only the public key is used.
//   - key.go: accepted keys, and their PEM.
//   - bundle.go: a CA's certificate and key, with the chain to its roots, checked together.
//   - leaf.go: the profiles of issued certificates, and the check of each certificate before it is returned.
//   - revocation.go: certificate revocation lists, and the check of a chain by them.
//
// The package is pure: time is an argument. All input is bounded before it is decoded.
//
// # Guarantees
//
//   - A CA with a missing part, or with a part of another CA, is refused: [TestBundle], [TestAuthorityKeys]. A bundle
//     expires with its chain: [TestBundleExpiresWithItsChain]. No error shows a key: [TestErrorsHaveNoKey]. A chain in
//     which an issuer has revoked a certificate is refused, and no other chain: [TestRevocations].
package pki
