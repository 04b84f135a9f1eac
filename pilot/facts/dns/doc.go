// Package dns is the provider of facts that resolves host names. It resolves the names of gateways between networks
// whose address is only known by name, such as load balancers of some clouds. A name whose lookup fails keeps its last
// addresses. State and goroutines are those of a Poller (package poll).
package dns
