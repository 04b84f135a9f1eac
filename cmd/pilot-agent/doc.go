// Command pilot-agent runs beside an Envoy: `proxy` makes its bootstrap, gets its certificates, connects it to the
// control plane and supervises it; `wait` waits until it is ready; `request` asks its admin API; `version` prints its
// own version.
//
// Flags and the environment in, Options out; nothing else. The work is in pilot/agent.
package main
