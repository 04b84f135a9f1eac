// Package virtualservice is the feature of VirtualServices: it translates their HTTP routes to Envoy routes, and
// determines the destinations of their TLS and TCP routes.
//
// It does not know which services exist, which VirtualService applies to a host, or what a DestinationRule contains.
// Package rds passes that in feature.RouteOptions. Results may share messages with the VirtualService, so neither may
// be changed. The package is pure.
//
// - virtualservice.go: what the feature declares.
// - routes.go: one route, and the order and number of them.
// - match.go: the matchers of requests.
// - action.go: the actions: destinations, mirrors, redirects.
// - connection.go: routes of connections that carry no HTTP, or are not terminated.
// - filter.go: the fault and CORS filters of a route, and headers.
// - unsupported.go: fields without effect.
//
// # Guarantees
//
// - A redirect that changes the scheme alone uses the port of the new scheme: [TestSchemePort].
package virtualservice
