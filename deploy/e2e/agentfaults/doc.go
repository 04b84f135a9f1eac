// Package agentfaults runs whole agents beside real Envoys through faults around certificates: a full disk, a clock
// that is set, a control plane that is away, and a renewal every few seconds. Each request between the Envoys has its
// own connection with mutual TLS, and none fails.
//
// The agents are this test binary, which runs again in the network namespace of a pod, so that a test can set their
// clocks.
package agentfaults
