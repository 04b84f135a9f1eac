// Package envoy starts, supervises, drains and ends an Envoy. It also collects orphaned processes if the agent is PID 1
// of its container.
//
// If Envoy exits by itself, the agent ends with the same exit code. An Envoy that must end drains first: clients are
// asked to close their connections, and requests in progress are completed.
//
//   - envoy.go: arguments, start and end
//   - drain.go: the drain, through Envoy's admin API
//   - reap.go: orphaned processes
//
// A Process is started once. Run has one goroutine of its own, which waits for Envoy.
//
// # Guarantees
//
//   - Envoy's exit code is the agent's: [TestExitCodes]. An Envoy that is to end drains first, once, and ends as soon
//     as its connections have: [TestDrain]. A second signal ends it at once: [TestKill].
//   - Orphaned processes are reaped, and other children are left to their parents: [TestReap].
package envoy
