// Package envoytest checks by a real Envoy in validation mode whether Envoy accepts resources: clusters, assignments,
// listeners, route configurations and configurations of filters. One bootstrap holds many resources as static ones. If
// Envoy rejects it, the package bisects until each rejected resource is alone.
//
// Resources that Envoy tells apart by name or address alone are renamed if two of them have the same. A listener keeps
// its subscriptions, so its route configurations are checked separately. Filters that only Istio's Envoy has are left
// out, and so are secrets, which pilot/feature and api/credentials check in tests of their own.
//
// Only tests import the package. It has no state and starts no goroutine.
package envoytest
