// Package pki reads, makes and checks what a certificate authority works with: certificate requests, keys,
// certificates, and the bundle of a CA. It follows RFC 5280 and the X.509-SVID standard of SPIFFE.
//
//   - request.go: what a caller asks to have certified; of it only the public key counts.
//   - key.go: which keys are accepted, and their PEM.
//   - bundle.go: a CA's certificate and key, with the chain to its roots, checked as a whole.
//   - leaf.go: the profiles of certificates that are issued, and the check of each before it is handed out.
//   - revocation.go: certificate revocation lists, and the check of a chain by them.
//
// The package is pure: time is an argument. Everything that it reads is bounded before it is decoded.
//
// # Guarantees
//
//   - A CA with a missing part, or with a part of another CA, is refused: [TestBundle], [TestAuthorityKeys]. A bundle
//     expires with its chain: [TestBundleExpiresWithItsChain]. No error shows a key: [TestErrorsHaveNoKey]. A chain in
//     which an issuer has revoked a certificate is refused, and no other chain: [TestRevocations].
package pki
