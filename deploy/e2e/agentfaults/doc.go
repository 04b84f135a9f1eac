// Package agentfaults runs whole agents beside real Envoys through what goes wrong around certificates: a full disk, a
// clock that is set, a control plane that is away, and a renewal each few seconds. Each request between the Envoys has
// a connection of its own, by mutual TLS, and none fails.
//
// The agents are this test binary, run again in the network namespace of a pod: so a test can set their clocks.
package agentfaults
