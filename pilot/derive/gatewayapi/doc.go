// Package gatewayapi is the stage that derives Gateways, VirtualServices and DestinationRules of Istio from objects of
// the Gateway API, what their statuses should say, and which secrets proxies may have for them.
//
//   - stage.go: the stage, what it keeps, and the order of its steps.
//   - lookups.go: what something was made of, so that it is made again when that changes, and only then.
//   - classes.go: which GatewayClasses are this controller's.
//   - grants.go: references between namespaces, by ReferenceGrants.
//   - gateways.go, listeners.go: Gateways and ListenerSets: a Gateway of Istio for each listener.
//   - kept.go: which listeners stay as they are where a Gateway or one of its ListenerSets changes.
//   - routes.go, attach.go: what routes have in common: their backends, their parents, the listeners that take them.
//   - httproute.go, filters.go: the rules of HTTPRoutes and GRPCRoutes, and the precedence of their matches.
//   - hosts.go: a VirtualService for each host of a Gateway, or for each service.
//   - streams.go: TLSRoutes and TCPRoutes of listeners, and which of them has which connections.
//   - losses.go: what routes do not get because another one comes first: findings and conditions.
//   - isolation.go: which listener requests for a host are of, and what answers where it has no route.
//   - backendtls.go: BackendTLSPolicies: a DestinationRule for each host of a target.
//   - status.go: conditions.
//
// A route is converted once for all its hosts. The VirtualService of a host has the rules of all routes that have the
// host, by the precedence that the Gateway API lays down. The rules of a route that is not for all listeners of the
// Gateway name the listeners that it is for.
//
// Each Gateway, ListenerSet, route and policy is a unit. It is made of its object and of cells: the objects that it
// looks up, the ReferenceGrants of a namespace, the controller of a class, the listeners of a Gateway or a ListenerSet.
// A change has those units made again that have read a cell which it changes. Hosts, connections, statuses of Gateways
// and services that policies target are made of units: a unit that is made again says which of them are due. So a run
// touches nothing that a change does not concern, and the derivation does not depend on the order of changes. What is
// written into the status of an object makes nothing anew but that status.
package gatewayapi
