// Package discovery has the command discovery, which runs the server: its flags, and the limits of the process.
//
// # Guarantees
//
//   - A variable that restricts and cannot be read keeps the server from starting: [TestVariablesThatRestrict]. The
//     cgroup sets the memory limit: [TestMemoryLimit].
//   - Traces are off unless OTEL_* variables enable them, and reach a collector: [TestTracer]. Errors of their
//     exporter are logged in the log's format: [TestTracerLogs].
package discovery
