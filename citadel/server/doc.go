// Package server serves istio.v1.auth.IstioCertificateService. Proxies request certificates by its method
// CreateCertificate.
//
// CreateCertificate authenticates the caller before it reads the request. Then it decides which identity to certify:
// the caller's own, or one that runs on the caller's node (workloads.go). A caller that only has a certificate may
// renew it only if something may run as its service account. The server limits the rate of each identity, and calls the
// issuer. If the authenticator, the workloads or the issuer are unavailable, the answer is Unavailable and the caller
// tries again. The server runs no goroutine of its own.
//
// # Guarantees
//
//   - A trusted account's pod gets certificates of the accounts that run on its node, and no others. While the pods
//     are unknown it gets none: [deploy/e2e/kube.TestNodes], [TestCreateCertificate], [pilot/ingest.TestWorkloads].
//   - One identity's requests delay no other identity: [TestFlood], [TestSigningsOfOneIdentity],
//     [TestPodsOfOneServiceAccount].
//   - A caller without a credential is refused before the server reads its request: [TestStrangersSendNothing].
//   - A certificate is renewed by itself only while a workload of its account exists: [TestRenewal],
//     [pilot/ingest.TestHasAccount], [deploy/e2e/kube.TestRenewals].
package server
