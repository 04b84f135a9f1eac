// Package certmanager tests cert-manager's own controllers (controllers.go), on a real API server with a node of
// package node, as the source of all certificates: of gateways by Secrets, and of workloads and the control plane by
// CertificateSigningRequests that its issuers sign. Gateways and sidecars are real Envoys.
//
// # Guarantees
//
//   - The control plane waits for its own certificate until an issuer signs it. Proxies get certificates from the
//     issuer that they name or from the default one, and use mutual TLS with the roots of both: [TestCertManager].
//   - The control plane's log names an issuer that refuses a request, and the reason. No request is left behind:
//     [TestCertManager].
//   - A Gateway serves the certificate of its Secret. After a renewal, it serves the new one, and no handshake fails:
//     [TestCertManager].
//   - A Gateway of the Gateway API with cert-manager's annotation gets its certificate: [TestCertManager].
package certmanager
