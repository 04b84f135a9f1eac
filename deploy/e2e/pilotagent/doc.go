// Package pilotagent runs real Envoys under pilot-agent: sidecars and a gateway, each in a network namespace, with a
// control plane that has a CA. Nothing redirects their traffic: they listen where Sidecars say. Calls between them are
// mutual TLS, and none fails while the control plane is killed or an agent is ended. A gateway asks its clients to go.
package pilotagent
