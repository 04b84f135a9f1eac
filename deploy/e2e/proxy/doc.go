// Package proxy runs a real Envoy as the sidecar or gateway of a pod, and reads its admin API.
//
// An agent runs it, as in an injected pod: it has the certificates and passes the streams on. Without one, the package
// writes a bootstrap itself, and Envoy asks the control plane's plaintext port. A Proxy is owned by whoever started it
// and runs one goroutine, which waits for the process to end.
package proxy
