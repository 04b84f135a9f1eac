// Package envoytest asks a real Envoy, in its validation mode, whether it takes resources: clusters, assignments,
// listeners, route configurations and configurations of filters. Many are asked about at once, in a bootstrap that has
// them all as static resources; of those that are refused, halves are asked about until each is alone.
//
// What is told apart by name or address alone is renamed where two resources have the same. A listener keeps its
// subscriptions, so its route configurations are asked about by themselves. Filters that only Istio's Envoy has are
// left out, and so are secrets, which pilot/feature and api/credentials show in tests of their own.
//
// Only tests import the package. It has no state and starts no goroutine.
package envoytest
