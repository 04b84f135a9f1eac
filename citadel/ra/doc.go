// Package ra is a registration authority: it has certificates signed by a signer of Kubernetes, in the place of a CA of
// its own. It makes a CertificateSigningRequest, approves it, waits for the certificate, and deletes the request,
// whatever came of it.
//
//   - ra.go: what is asked for, and what is handed out.
//   - request.go: one CertificateSigningRequest.
//
// A signer certifies what a request says, so one that says anything but its caller's identity is refused before a
// signer sees it. What comes back is verified as a stranger would: it has the caller's one name, no more rights than a
// workload's, is for the caller's key, is valid for as long as allowed, and leads to a root of the signer.
//
// # Guarantees
//
//   - A signer of Kubernetes sees requests for the caller's own name alone. Its certificate is handed out only if it
//     is the one that was asked for, and no request is left behind: [TestRequests], [TestIssue], [TestCallerLeaves],
//     [deploy/e2e/kube.TestSigners].
package ra
