// Package destinationrule is the feature of traffic policies, which DestinationRules have, and Sidecars for calls to
// their workload. Which policy is in force is known before: see pilot/scope/traffic.
//
//   - destinationrule.go: what the feature declares.
//   - cluster.go: load balancing, connection pools and outlier detection of a cluster.
//   - connection.go: connections that are forwarded as bytes: timeouts, tunnels; PROXY headers.
//   - tls.go: how its connections are secured.
//   - choice.go: how a cluster chooses among endpoints, and how they are called.
//   - hash.go: the consistent hash of the routes that lead to it.
//   - unsupported.go: the fields that have no effect.
//
// The package is pure.
package destinationrule
