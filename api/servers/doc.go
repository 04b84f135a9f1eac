// Package servers decides how servers of Gateways handle connections, and which servers of one port can share it.
// Translation and analysis share it. It does no I/O.
//
// # Guarantees
//
//   - Each protocol and mode of TLS has one use: [TestUseOf]. A server without effect is a finding: [TestPort].
//   - A redirect that leads to itself is told from others: [TestRepeats].
package servers
