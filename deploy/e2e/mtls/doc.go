// Package mtls tests mutual TLS between real Envoys with certificates from the control plane. A small client, instead
// of an agent, authenticates with a token, requests a certificate, and gives it to its Envoy.
//
// # Guarantees
//
//   - Istio's own agent, with its bootstrap and a stock Envoy, gets certificates and configuration from the secure
//     port, and so it does by a token of a real API server: [TestPilotAgent], [deploy/e2e/kube.TestPilotAgent]. Either
//     agent works with either control plane, and both are measured: [deploy/e2e/pairs.TestPilotAgentPairs],
//     [deploy/e2e/pairs.TestFiguresOfAgents] (make compat, make agents).
//   - A stock Envoy serves and calls proxies of Istio's build: HTTP is detected as HTTP, and only the application's
//     bytes reach the application: [TestStockBesideIstios].
package mtls
