// Package mtls is the feature of mutual TLS between the proxies of the mesh: a PeerAuthentication decides which
// connections a port accepts.
//
// - mtls.go: what the feature declares, and the mode of a port.
// - select.go: the PeerAuthentications that apply to a workload.
// - contexts.go: the TLS contexts of both sides.
// - announce.go: the ALPN by which the other side recognizes HTTP.
// - unsupported.go: settings of the mesh without effect.
//
// Certificates and roots are only named: the agent beside the proxy serves them. The package is pure.
//
// # Guarantees
//
//   - A PeerAuthentication with a selector in the root namespace has no effect, as in istiod, and is a finding:
//     [TestSelectorInTheRootNamespace], [galley/analysis.TestObjectsWithoutEffect].
//   - Between real Envoys, every mode accepts and rejects the connections that it should: [deploy/e2e/mtls.TestModes].
//     Goldens show what each object changes: [TestGoldens].
package mtls
