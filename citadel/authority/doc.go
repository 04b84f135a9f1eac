// Package authority runs a CA: it loads its keys and certificates, follows changes and rotations, and keeps the
// server's own certificate valid.
//
//   - authority.go: the loop. After an error at run time the last good CA stays in use and a finding says why.
//   - serving.go: the server's own certificate and its TLS configuration.
//   - held.go: which certificate is shown to API servers, which learn its root by the caBundle of a webhook.
//   - client.go: connections to other servers of the control plane.
//
// The goroutine of Run owns the state of the Authority and changes it. Any goroutine may read it.
//
// # Guarantees
//
//   - A CA that cannot be loaded keeps the last good one, and a new CA that no proxy trusts yet is refused:
//     [TestPlugged], [TestReplaced]. A start waits for a stored CA: [TestLoadWaitsForAStoredCA].
//   - A root is replaced once it was due for a while, by the leader where several servers have one store:
//     [TestSelfSigned], [TestNotLeader].
//   - The CA signs only what the server itself trusts, and a certificate of the server that cannot be renewed is a
//     finding: [TestOwnCertificateComesFirst], [TestRenewalFails], [TestServingIsVerified], [TestRevocations].
//   - A server whose clock was set shows a valid certificate: [TestClockIsSetBack], [TestTimesOfDay]. A removed state
//     folder is written again: [pilot/bootstrap.TestStateFolderIsRemoved].
//   - A certificate by a new root is shown once all API servers trust that root: [TestHeld], [TestHeldUntilItExpires].
//   - A replica has an identity for its questions to other replicas, or none is asked: [TestClient],
//     [TestClientOfOthers].
package authority
