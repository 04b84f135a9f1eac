// Package gatewayapi is the stage that derives Gateways, VirtualServices and DestinationRules of Istio from objects of
// the Gateway API, with the wanted statuses of these objects and the secrets that proxies may have for them.
//
//   - stage.go: the stage, what it keeps, and the order of its steps.
//   - lookups.go: the dependencies of results, which are made again if and only if one changes.
//   - classes.go: which GatewayClasses are this controller's.
//   - grants.go: references between namespaces, by ReferenceGrants.
//   - gateways.go, listeners.go: Gateways and ListenerSets: a Gateway of Istio for each listener.
//   - kept.go: which listeners stay unchanged when a Gateway or one of its ListenerSets changes.
//   - routes.go, attach.go: what routes have in common: their backends, their parents, the listeners that take them.
//   - httproute.go, filters.go: the rules of HTTPRoutes and GRPCRoutes, and the precedence of their matches.
//   - hosts.go: a VirtualService for each host of a Gateway, or for each service.
//   - streams.go: TLSRoutes and TCPRoutes of listeners, and which of them gets which connections.
//   - losses.go: matches and connections that a route loses to another one: findings and conditions.
//   - unreached.go: matches that no request reaches, and redirects that lead to themselves.
//   - isolation.go: which listener gets the requests for a host, and the answer if it has no route.
//   - backendpolicy.go: policies for backends: a DestinationRule for each host of a target.
//   - backendtls.go, backendtraffic.go: what BackendTLSPolicies and XBackendTrafficPolicies set in it.
//   - status.go: conditions.
//
// A route is converted once for all its hosts. The VirtualService of a host has the rules of all routes that have the
// host, by the precedence that the Gateway API lays down. The rules of a route that is not for all listeners of the
// Gateway name the listeners that it is for.
//
// Each Gateway, ListenerSet, route and policy is a unit. It is made of its object and of cells: the objects that it
// looks up, the ReferenceGrants of a namespace, the controller of a class, the listeners of a Gateway or a ListenerSet.
// A change of a cell makes the units that have read it due. Hosts, connections, statuses of Gateways and services that
// policies target are made from units: a unit that is made again marks the ones that depend on it as due. So a run
// does not touch what a change does not affect, and the derivation does not depend on the order of changes. A write to
// the status of an object makes only that status due.
//
// # Guarantees
//
//   - The Gateway API's own suite passes with real Envoys, the core of each profile in make test and all features that
//     istiod claims in make conformance: [deploy/e2e/conformance.TestConformance].
//   - Objects and statuses equal the real istiod's, except for a list with reasons: [TestIstiod]. On an API server
//     each condition has the generation of its object, and a right status is left alone: [TestStatusesSettle],
//     [deploy/e2e/gatewaystatus.TestGenerationsAsIstiod].
//   - A route has no requests for hosts of a more specific listener of the port: [TestIsolated]. Where that listener
//     has no route for them they are answered with 404: [TestUnrouted], [TestMovedSet].
//   - The oldest of TLSRoutes and TCPRoutes for the same connections has them, and of equal age the first by
//     namespace/name. A listener that terminates TLS leads each name to its own route: [TestConnections],
//     [deploy/e2e/traffic.TestServerNames]. Matches of HTTPRoutes are tried in the order of the Gateway API:
//     [TestPrecedence]. Findings and conditions name what routes lose: [TestLosers], [TestIdleRoute], [TestLostPort].
//     Hosts with the same routes share their rules: [TestSharedHosts].
//   - Listeners that terminate TLS for overlapping names have a condition: [TestOverlaps]. A UDPRoute has no effect,
//     which its status and findings say: [TestUDPRoutes].
//   - The status of a BackendTLSPolicy names each Gateway with routes to its targets, also by ListenerSets:
//     [TestAncestors], [TestIgnoredPolicy]. Its TLS settings replace those of DestinationRules:
//     [pilot/scope/traffic.TestBackendTLS].
//   - XBackendTrafficPolicies limit retries of clients of a Service, if alpha parts of the API are enabled: the oldest
//     for each Service, unless a DestinationRule does. Findings name fields and targets without effect:
//     [TestBackendTraffic], [pilot/scope/traffic.TestRetryBudget].
//   - Proxies of a Gateway show its certificate to backends with a BackendTLSPolicy, and other rules of these backends
//     stay in force: [TestClientCertificate], [pilot/scope.TestRulePrecedence].
//   - Clients without a valid certificate are let in only where a Gateway says so, and its status shows it:
//     [TestInsecureClients]. A listener whose options cannot be enforced takes no connections: [TestListenerOptions].
//   - A route that cannot be served answers with 500: [TestUnsupportedRoutes], [TestLiteralHeaders]. A backend or
//     Secret of another namespace needs a ReferenceGrant: [TestGrantOfParent], [TestShared].
//   - A route may lead to a ServiceImport, by a grant for ServiceImports: [TestServiceImports].
//   - Each kind of route leads requests through real Envoys where it says, from a directory; unreachable backends are
//     refused, and a finding names the line: [deploy/e2e/traffic.TestSample], [deploy/e2e/traffic.TestRefused].
//   - After any history of changes the derivation is what the objects say, and nothing is derived again without a
//     change: [TestHistories]. A write to a status derives that status again and nothing else; a changed route derives
//     its hosts alone, and a ListenerSet its own routes: [TestWrittenStatus], [TestOneRoute], [TestOneSet].
package gatewayapi
