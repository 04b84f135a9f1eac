// Package envoy holds what every translation needs of Envoy's API and nothing of Istio's: encoded resources and Sets of
// them, the memo that builds each resource once, interned lists of names, and small constructors for addresses, filters
// and config sources.
//
// Encoding is deterministic, inside every Any too: equal input has equal bytes and so equal versions. Nothing here
// reads a clock, a file or the network. Only Memo and NameInterner have state. It belongs to whoever makes one, and
// correctness never depends on it. Both are safe for concurrent use. The package starts no goroutine.
//
// A secret is a resource that is neither shown nor kept idle.
//
// # Guarantees
//
//   - Equal keys of the memo return the same pointer: [TestMemo]. An idle resource is kept for a minute:
//     [TestMemoKeepsNothingOld]; an idle secret is not: [TestMemoKeepsNoIdleSecret].
//   - A route configuration is the same, whether its virtual hosts are inside or apart: [TestNewRoute].
//   - The content of a secret is never printed: [TestSecretIsPrintedRedacted]. A resource of a secret type is sent
//     only to a client that named it: [TestSecretTypes].
//   - TLS that names no algorithm that Envoy knows is restricted and not opened: [TestRestrict].
package envoy
