// Package resolver asks DNS for the addresses of gateways between networks that are known by name alone, as those of
// some load balancers are, and hands the answers on as changes, one object a name: what is made of changes reads no
// DNS.
//
// A name is asked for at once when it is new, and then again and again, less often while it fails. A name that cannot
// be resolved keeps the addresses that it had.
//
// State: the Resolver's names, under its lock. Goroutines: one, in Run, and one for each of the few questions that are
// open at a time; Run waits for them. Other methods may be called from any goroutine.
package resolver
