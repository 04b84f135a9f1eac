// Package bootstrap makes the configuration that an Envoy starts with: who it is, where its control plane is and how to
// ask it, where its certificates come from, and where its admin API listens. Clusters, listeners and routes come from
// the control plane.
//
//   - bootstrap.go: New; with it an Envoy can run alone
//   - agent.go: what an agent beside it adds: ports for readiness and metrics, the log, the runtime
//   - stats.go: which metrics Envoy keeps, and their labels
//   - report.go: where it sends traces, metrics and access logs
//
// It starts no Envoy, reads no file and holds no state.
//
// # Guarantees
//
//   - A server that Envoy reports to over TLS needs a certificate that a configured root verifies: [TestTLSOfReports].
package bootstrap
