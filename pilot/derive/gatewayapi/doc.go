// Package gatewayapi is the stage that derives Gateways, VirtualServices and DestinationRules of Istio from objects of
// the Gateway API, what their statuses should say, and which secrets proxies may have for them.
//
//   - stage.go: the stage, and the order of its steps.
//   - lookups.go: what something was made of, so that it is kept while none of that changes.
//   - classes.go: which GatewayClasses are this controller's.
//   - grants.go: references between namespaces, by ReferenceGrants.
//   - gateways.go, listeners.go: Gateways and ListenerSets: a Gateway of Istio for each listener.
//   - routes.go, attach.go: what routes have in common: their backends, their parents, the listeners that take them.
//   - httproute.go, filters.go: the rules of HTTPRoutes and GRPCRoutes, and the precedence of their matches.
//   - hosts.go: a VirtualService for each host of a Gateway, or for each service.
//   - backendtls.go: BackendTLSPolicies: a DestinationRule for each host of a target.
//   - status.go: conditions.
//
// A route is converted once for all its hosts. The VirtualService of a host has the rules of all routes that have the
// host, by the precedence that the Gateway API lays down. The rules of a route that is not for all listeners of the
// Gateway name the listeners that it is for.
//
// A result is kept while the objects that it was made of, and those that were looked up for it, stay the same. A run
// goes over all routes and hosts to see that they do, which costs a few pointers each, and makes what does not. What is
// written into the status of a Gateway is no change to its routes.
package gatewayapi
