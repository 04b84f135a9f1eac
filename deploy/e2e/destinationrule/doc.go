// Package destinationrule tests what real Envoys make of traffic policies: tunnels through a proxy, PROXY headers, idle
// timeouts, the protocol of requests, and the codes by which endpoints are ejected.
package destinationrule
