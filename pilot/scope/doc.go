// Package scope works out what proxies may see: which services, VirtualServices and DestinationRules reach a namespace, by exportTo, by Sidecar
// resources and by Istio's rules of precedence.
//
// An Index is made for each Snapshot, from the one before at the cost of what changed, and says in its Changes what that was. A Scope is that of one namespace and
// Sidecar: it lists nothing, and answers what a host means there. Both are immutable but for what they remember. It knows no Envoy.
package scope
