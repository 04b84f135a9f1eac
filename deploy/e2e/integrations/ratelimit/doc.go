// Package ratelimit tests global rate limits: real Envoys of two gateways and of a sidecar ask Envoy's own rate limit
// service by EnvoyFilters, as Istio documents them. The service keeps its numbers in a server of the Redis protocol
// (miniredis.go). The control plane reads a directory.
//
// # Guarantees
//
//   - Gateways share one limit, each value of a header has its own, and a sidecar limits what reaches its workload; the
//     service is a Service or a ServiceEntry: [TestLimits].
//   - Without the service, requests are denied or pass as failure_mode_deny says, at gateways and at sidecars:
//     [TestWithoutTheService].
package ratelimit
