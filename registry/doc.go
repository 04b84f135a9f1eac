// Package registry defines the vocabulary of service discovery: services, their ports, their endpoints, and the
// workloads of proxies. All registries return these types and all translations read them.
//
// A registry is a state machine without goroutines. It takes changes of configuration objects and returns which
// services, endpoints and workloads changed. It owns its state and is used by one goroutine. Returned values are
// immutable. It depends on no client, no file and not on Envoy.
package registry
