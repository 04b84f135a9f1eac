// Package registry holds the vocabulary of service discovery: services, their ports, their endpoints, and the workloads
// that proxies run in. All registries return it and all translations read it.
//
// A registry is a state machine without goroutines. It takes changes of configuration objects and returns which
// services, endpoints and workloads changed. It owns its state and is used by one goroutine. What it returns is
// immutable. It knows no client, file or Envoy.
package registry
