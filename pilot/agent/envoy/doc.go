// Package envoy starts an Envoy, supervises it, drains it and ends it. It also collects the processes that nobody else
// waits for, where the agent is the first process of its container.
//
// An Envoy that ends by itself ends the agent, with the same exit code. One that is asked to end drains first: clients
// are told to go elsewhere, and calls that were begun are finished.
//
//   - envoy.go: arguments, start and end
//   - drain.go: the drain, by Envoy's admin API
//   - reap.go: processes that nobody waits for
//
// A Process is started once. Run has one goroutine of its own, which waits for Envoy.
//
// # Guarantees
//
//   - Envoy's exit code is the agent's: [TestExitCodes]. An Envoy that is to end drains first, once, and ends as soon
//     as its connections have: [TestDrain]. A second signal ends it at once: [TestKill].
//   - Orphaned processes are reaped, and other children are left to their parents: [TestReap].
package envoy
