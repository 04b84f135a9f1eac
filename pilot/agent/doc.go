// Package agent runs beside each Envoy and connects it to the control plane. It combines the packages below it:
//
//   - config: arguments, environment and files as typed values
//   - bootstrap: the configuration that Envoy starts with
//   - envoy: starts, supervises, drains and ends Envoy
//   - upstream: connections to the control plane
//   - ca, secrets, sds: certificates from the control plane or from files, which Envoy gets on a Unix socket
//   - xdsproxy: the socket on which Envoy asks for configuration; each of its streams has one to the control plane
//   - wasm: fetches the Wasm modules that extensions name
//   - dns: answers DNS queries from the name table of the control plane
//   - status: readiness, metrics and the probes of the application, on port 15020
//   - health: probes of an application on a virtual machine
//   - capture: `istio-iptables`, which redirects the traffic of a pod to Envoy
//
// It imports only api and libraries, and no other packages of pilot, so that the binary stays small.
//
// # Contracts
//
// Each component is a struct. `New(Options) (*T, error)` checks the options, opens the sockets and starts no goroutine.
// Clients may connect when it has returned. `Run(ctx) error` blocks until ctx ends, closes what New opened and returns
// nil. Any earlier return is a fault that ends the agent. Run is called once. Goroutines start through safe.Go. Options
// have a *slog.Logger and a prometheus.Registerer, which may be nil. Only cmd reads the environment.
//
// Components start in the order dns, certificates, secrets, configuration, status, and then Envoy. At the end, Envoy
// drains and ends first, and then all components. A second signal ends Envoy at once.
//
// An Agent has one goroutine for each component and one for Envoy. All of them end before Run returns.
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
