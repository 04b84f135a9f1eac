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
//
// # Guarantees
//
//   - Sidecars and a gateway get certificates and configuration through their agents and call by mutual TLS alone. No
//     request fails while the control plane is killed, or while a server is ended with requests in flight. Envoy's
//     exit is the agent's: [deploy/e2e/pilotagent.TestAgents].
//   - While certificates of one minute are renewed, a disk is full, a token is gone, an agent has no file descriptor
//     left, a clock is set by an hour, and the control plane is away for a day of that clock, no request between
//     Envoys fails, each by a connection of its own. An agent that crashed starts again where it was:
//     [deploy/e2e/agentfaults.TestFaults]. make soak goes on with that for ten minutes a round.
//   - Istio's arguments are accepted, and those without effect are named: [cmd/pilot-agent.TestProxyFlags]. request
//     and wait do what hooks and istioctl expect: [cmd/pilot-agent.TestRequest]. Idle memory goes back to the kernel:
//     [cmd/pilot-agent.TestPace], [cmd/pages.TestPagesAreReleased].
//   - Where another server has the certificates, or the platform puts them into files, no CA is asked. If that server
//     is missing the agent does not take its place: [TestOtherCertificates], [pilot/agent/config.TestSecurity],
//     [deploy/e2e/pilotagent.TestAgents/MutualTLS]. A second agent in one folder is refused: [TestSecondAgent].
//   - A bootstrap is what Istio's agent writes from the same arguments, environment and files, except for the test's
//     list with reasons: [TestAsIstios].
package agent
