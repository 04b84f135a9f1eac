// Package ra is a registration authority: a signer of Kubernetes signs the certificates instead of an own CA. The
// package creates a CertificateSigningRequest, approves it, waits for the certificate, and deletes the request in any
// case.
//
//   - ra.go: which requests are accepted, and the check of the certificates.
//   - request.go: the life of one CertificateSigningRequest.
//
// A signer certifies the content of a request, so a request for more than its caller's identity is refused before a
// signer sees it. The returned certificate is verified: it has only the caller's name, no more rights than a
// workload's, the caller's key, a lifetime within the bound, and leads to a root of the signer.
//
// # Guarantees
//
//   - A signer of Kubernetes sees requests for the caller's own name alone. Its certificate is handed out only if it
//     is the one that was asked for, and no request is left behind: [TestRequests], [TestIssue], [TestCallerLeaves],
//     [deploy/e2e/kube.TestSigners], [deploy/e2e/integrations/certmanager.TestCertManager].
//   - The log says why a signer does not sign: [TestIssue].
package ra
