// Package trustdomain decides which roots prove identities of which trust domains of the mesh.
//
//   - domains.go: the decision, for callers that show a certificate, and the roots that workloads trust.
//   - anchors.go: the caCertificates of the mesh configuration: roots of this mesh, of signers of Kubernetes, and of
//     other trust domains. Bundles fetches the roots that a URL names.
//
// An entry that cannot be read, or is not fetched yet, trusts nothing, and a finding says so. An expired bundle stays
// in force for a while; see Bundles.
//
// State: the parsed entries of the last mesh configuration, under a lock. The package runs no goroutine.
//
// # Guarantees
//
//   - A root of the mesh configuration proves only identities of the trust domains written beside it, also where it is
//     a signer's. A peer whom only a root of aliases proves gets no secret, debug page, registration or certificate. A
//     revoked certificate is refused, and the list is handed out: [TestRootsOfSigners], [TestExpiredAnchors],
//     [pilot/bootstrap.TestAnchors], [pilot/bootstrap.TestSpiffeBundles], [pilot/bootstrap.TestRevoked],
//     [pilot/authorize.TestWhatPeersMayDo], [deploy/e2e/kube.TestPlugged].
package trustdomain
