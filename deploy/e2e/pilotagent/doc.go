// Package pilotagent runs real Envoys under pilot-agent: sidecars and a gateway, each in a network namespace, with a
// control plane that has a CA. Traffic is not redirected; Sidecars say where the proxies listen. Calls between them use
// mutual TLS, and none fails while the control plane is killed or an agent ends. A gateway that ends asks its clients
// to leave. Metrics are served to clients with a certificate of the mesh.
package pilotagent
