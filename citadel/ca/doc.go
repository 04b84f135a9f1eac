// Package ca issues certificates to workloads and servers.
//
// A CA signs with one pki.Bundle at a time. The owner of the CA loads and rotates bundles, and puts a new one in use by
// calling Use. The identity in a certificate comes from the authenticated caller, never from the certificate request,
// of which only the key is used. The package reads no file and no network, and runs no goroutine.
//
// # Guarantees
//
//   - A certificate has exactly one name, the caller's, and no more rights than a workload's, whatever a request asks
//     for. It is valid for MAX_WORKLOAD_CERT_TTL at most, and no longer than the certificates that lead to its root:
//     [TestProfile], [TestRequests], [TestEveryCertificateKeepsTheProfile], [TestIssuerExpires], [FuzzIssue].
//   - Keys of requests have an accepted kind and size: [TestKeys], [TestRSA]. Other implementations accept the
//     certificates: [TestSpiffeAcceptsCertificates].
package ca
