// Package ca requests certificates from the control plane, with CreateCertificate of istio.v1.auth.
//
// A Client makes one call for each request and does not retry: package secrets decides when to ask again. Its only
// state is its metrics. It starts no goroutine.
//
// # Guarantees
//
//   - A token is read again for each call, and roots and client certificates for each handshake. When the roots
//     change, the connection ends that was made with the old ones: [TestSign].
package ca
