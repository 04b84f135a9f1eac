// Package virtualservice tests what real Envoys make of VirtualServices and of consistent hashes.
//
//   - virtualservice_test.go: the mesh; mirrors, rewritten hosts, delegates, routes for some clients alone, and
//     requests that stay with one endpoint.
//   - actions_test.go: retries, timeouts, shares of mirrors and faults, preflights, headers, redirects, hosts with
//     ports.
//   - connections_test.go: routes of TCP and TLS.
package virtualservice
