// Package eds makes assignments, the endpoints of clusters: Envoy's envoy.config.endpoint.v3.ClusterLoadAssignment, by
// EDS. https://www.envoyproxy.io/docs/envoy/latest/api-v3/config/endpoint/v3/endpoint.proto
//
// An assignment groups the endpoints of a port by locality (endpoints.go). Their priority may depend on their distance
// from the client (preference.go, topology.go). Endpoints behind another network's gateway are replaced by the gateway
// (splithorizon.go). The assignment of the proxy's own workload has its replicas (self.go). Weights are scaled to
// Envoy's limits (weights.go). Endpoints are written directly in the wire format (wire.go).
//
// Package cds uses Inline for clusters that contain their endpoints.
package eds
