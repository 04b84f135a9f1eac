// Package ca issues certificates to workloads and servers.
//
// A CA signs with one pki.Bundle at a time. Whoever loads and rotates bundles gives it a new one by Use; it goes on
// with the last one until then. Whom a certificate is for is decided by whoever authenticated the caller: of a
// certificate request only the key counts. The package reads no file and no network, and runs no goroutine.
//
// # Guarantees
//
//   - A certificate has exactly one name, the caller's, and no more rights than a workload's, whatever a request asks
//     for. It is valid for MAX_WORKLOAD_CERT_TTL at most, and no longer than the certificates that lead to its root:
//     [TestProfile], [TestRequests], [TestEveryCertificateKeepsTheProfile], [TestIssuerExpires], [FuzzIssue].
//   - Keys of requests have an accepted kind and size: [TestKeys], [TestRSA]. Other implementations accept the
//     certificates: [TestSpiffeAcceptsCertificates].
package ca
