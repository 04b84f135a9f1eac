// Package telemetry tests with real Envoys what Telemetry objects and the mesh configuration have proxies log, trace
// and leave out. The collectors of logs and traces are servers of the tests, on the network of the pods: they speak
// Envoy's access log service, OTLP over gRPC and HTTP, and Zipkin's protocol.
//
//   - mesh_test.go: the mesh, and how pods call.
//   - collector_test.go: the collectors.
//   - telemetry_test.go: what arrives, and what does not.
//   - settings_test.go: sides of calls, tags of the mesh, and what is not reported or passed on.
package telemetry
