// Package ca asks the control plane to sign certificates, by istio.v1.auth's CreateCertificate.
//
// A Client makes one call for each request and retries nothing: the package secrets decides when to ask again. It
// holds no state but its metrics, and runs no goroutine.
//
// # Guarantees
//
//   - A token is read again for each call, and roots and client certificates for each handshake. When the roots
//     change, the connection ends that was made with the old ones: [TestSign].
package ca
