// Package destinationrule is the feature of traffic policies, which are part of DestinationRules, and of Sidecars for
// calls to their workload. pilot/scope/traffic determines which policy is in force.
//
// - destinationrule.go: what the feature declares.
// - cluster.go: load balancing, connection pools and outlier detection of a cluster.
// - utilization.go: load balancing by the load reports of endpoints.
// - connection.go: connections that are forwarded as bytes: timeouts, tunnels; PROXY headers.
// - tls.go: TLS of a cluster's connections.
// - choice.go: how a cluster chooses among endpoints, and how they are called.
// - hash.go: the consistent hash of routes to the cluster.
// - unsupported.go: fields without effect.
//
// The package is pure.
package destinationrule
