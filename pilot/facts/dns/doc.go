// Package dns is the provider of facts that resolves host names, those of gateways between networks that are known by
// name alone, as the load balancers of some clouds are. A name that cannot be resolved keeps the addresses that it had.
// State and goroutines are those of a Poller (package poll).
package dns
