// Package resolver asks DNS for the addresses of gateways between networks that are known by name alone, as those of some load balancers are, and hands
// the answers on as changes, one object a name: what is made of changes reads no DNS.
//
// A Resolver runs one goroutine, in Run, which asks for one name after another: at once for one that is new, then again and again. A name that cannot be resolved
// keeps the addresses that it had. Want and Wait may be called from any goroutine.
package resolver
