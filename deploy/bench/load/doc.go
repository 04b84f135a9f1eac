// Package load simulates a fleet of Envoys: each connects to a control plane as Envoy does, subscribes and acknowledges in Envoy's order, lists the
// extensions that a real one lists, and counts what it is sent. It decodes no more of that than the names it needs to go on.
//
// A simulated Envoy accepts whatever it is sent, proxies no traffic, keeps no configuration, and presents no certificate but what Options.Credentials brings.
// It takes no virtual hosts by themselves (VHDS).
//
// A Fleet is owned by whoever started it, who calls Stop; it runs one goroutine a proxy, and gRPC its own. Each proxy's state is touched by its goroutine
// alone. All methods of Fleet and Track may be called from any goroutine.
package load
