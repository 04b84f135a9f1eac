// Package scope works out what proxies may see: which services, VirtualServices and DestinationRules reach a namespace, by exportTo, by Sidecar
// resources and by Istio's rules of precedence.
//
// An Index is made once for a Snapshot, a Scope once for each namespace and Sidecar of it; both are immutable. It knows no Envoy.
package scope
