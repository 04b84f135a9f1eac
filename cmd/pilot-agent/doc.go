// Command pilot-agent runs beside an Envoy. `proxy` writes its bootstrap, gets its certificates, connects it to the
// control plane and supervises it; `wait` waits until it is ready; `request` sends a request to its admin API;
// `istio-iptables` redirects the pod's traffic to it; `version` prints the version of the agent.
//
// This package turns flags and the environment into Options. The work is in pilot/agent.
package main
