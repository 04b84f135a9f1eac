// Package virtualservice translates the HTTP routes of a VirtualService to Envoy routes, and makes the routes of
// services without one.
//
// It does not know which services exist, which VirtualService applies to a host, or what a DestinationRule contains.
// Callers pass that in Options, whose functions must be pure. Everything here is a pure function. Results may share
// messages with the VirtualService, so neither may be changed. The package has no state and starts no goroutine.
//
//   - routes.go: one route, and the order and number of them.
//   - match.go: what a request must look like.
//   - action.go: what is done with it: destinations, retries, mirrors, redirects.
//   - filter.go: the fault and CORS filters of a route, and headers.
//   - defaults.go: routes of services without a VirtualService, outbound and inbound.
package virtualservice
