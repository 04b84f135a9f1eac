// Package registry holds the vocabulary of service discovery: services, their ports, the endpoints behind them and the workloads that proxies run in,
// as every registry gives them and every translation reads them.
//
// A registry is a state machine without goroutines: it is given changes of configuration objects and answers what services, endpoints and workloads are
// now different. It owns its state and is called by one goroutine. What it hands on is frozen. It knows no client, file or Envoy.
package registry
