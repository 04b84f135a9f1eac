// Package bootstrap makes the configuration that an Envoy starts with: its node, the address and the protocol of its
// control plane, the source of its certificates, and the address of its admin API. Clusters, listeners and routes come
// from the control plane.
//
//   - bootstrap.go: New, which is enough for an Envoy without an agent
//   - agent.go: the parts that an agent adds: ports for readiness and metrics, the log format, the runtime
//   - stats.go: the metrics that Envoy keeps, and their labels
//   - report.go: the services that get traces, metrics and access logs
//
// It starts no Envoy, reads no file and has no state.
//
// # Guarantees
//
//   - A server that Envoy reports to over TLS needs a certificate that a configured root verifies: [TestTLSOfReports].
//     COMPLIANCE_POLICY limits all TLS of a bootstrap: [TestCompliance].
//   - Envoy's ports for metrics by mutual TLS take only clients with a certificate of the mesh: [TestLocalMetrics],
//     [deploy/e2e/pilotagent.TestAgents].
//   - An annotation that Envoy would refuse is an error that names it: [TestStatsIntervals], [TestAgentRefused].
package bootstrap
