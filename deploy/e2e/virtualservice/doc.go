// Package virtualservice tests what real Envoys make of VirtualServices and of consistent hashes: mirrors, rewritten
// hosts, delegates, routes for some clients alone, and requests that stay with one endpoint.
package virtualservice
