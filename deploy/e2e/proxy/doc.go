// Package proxy runs a real Envoy as the sidecar or gateway of a pod, and reads its admin API.
//
// An agent runs Envoy, as in an injected pod: it has the certificates and relays the streams. Without an agent, the
// package writes a bootstrap, and Envoy connects to the control plane's plaintext port. The caller of Start owns the
// Proxy. A Proxy runs one goroutine, which waits for the process to end.
package proxy
