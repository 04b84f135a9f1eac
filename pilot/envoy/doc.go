// Package envoy holds what every translation needs of Envoy's API and nothing of Istio's: encoded resources and Sets of
// them, the memo that builds each resource once, interned lists of names, and small constructors for addresses, filters
// and config sources.
//
// Encoding is deterministic, also inside an Any: equal input gives equal bytes and so equal versions. The package reads
// no clock, no file and no network. Only Memo and NameInterner have state. Each belongs to the caller that made it, and
// correctness never depends on its state. Both are safe for concurrent use. The package starts no goroutine.
//
// A secret is a resource whose content is neither printed nor kept while it is unused.
//
// # Guarantees
//
//   - Equal keys of the memo return the same pointer: [TestMemo]. An idle resource is kept for a minute:
//     [TestMemoKeepsNothingOld]. An idle secret is not kept: [TestMemoKeepsNoIdleSecret].
//   - A route configuration has the same content whether its virtual hosts are inside it or separate: [TestNewRoute].
//   - A resource refers to each name that a client subscribes to because of it: [TestReferences].
//   - The content of a secret is never printed: [TestSecretIsPrintedRedacted]. A resource of a secret type is sent only
//     to a client that named it: [TestSecretTypes].
//   - TLS settings that name no algorithm known to Envoy become stricter, never more permissive: [TestRestrict].
package envoy
