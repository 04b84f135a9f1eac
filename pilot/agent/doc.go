// Package agent is the half of the mesh that runs beside each Envoy. It joins the packages below it and runs them:
//
//   - config: what arguments, environment and files say, as typed values
//   - bootstrap: the configuration that Envoy starts with
//   - envoy: starts Envoy, supervises it, drains it and ends it
//   - upstream: connections to the control plane
//   - ca, secrets, sds: certificates, from the control plane or from files, handed to Envoy on a Unix socket
//   - xdsproxy: the socket on which Envoy asks for configuration; one stream to the control plane for each of Envoy's
//   - wasm: fetches the Wasm modules that extensions name
//   - dns: answers DNS queries by the name table of the control plane
//   - status: readiness, metrics and the probes of the application, on port 15020
//   - health: probes of an application on a virtual machine
//   - capture: `istio-iptables`, which leads the traffic of a pod to Envoy
//
// It imports api and libraries only, nothing else of pilot, so that the binary stays small.
//
// # Contracts
//
// Each component is a struct. `New(Options) (*T, error)` checks the options, opens the sockets and starts nothing: when
// it has returned, clients may connect. `Run(ctx) error` blocks until ctx ends, closes what New opened and returns
// nil; any other return is a fault that ends the agent. Run is called once. Goroutines start through safe.Go. Options
// hold a *slog.Logger and a prometheus.Registerer; nil means none. Only cmd reads the environment.
//
// The order of start: dns, certificates, secrets, configuration, status, then Envoy. The order of the end: Envoy drains
// and ends, then all others. A second signal ends Envoy at once.
//
// An Agent has one goroutine for each component and one for Envoy, all of which end before Run returns.
package agent
