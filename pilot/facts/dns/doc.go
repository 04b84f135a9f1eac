// Package dns is the provider of facts that resolves host names, those of gateways between networks that are known by
// name alone, as the load balancers of some clouds are.
//
// A name is asked for at once when it is new, and then again and again, less often while it fails. A name that cannot
// be resolved keeps the addresses that it had.
//
// State: the Resolver's names, under its lock. Goroutines: one, in Run, and one for each of the few questions that are
// open at a time; Run waits for them. Other methods may be called from any goroutine.
package dns
