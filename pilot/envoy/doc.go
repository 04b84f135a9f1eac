// Package envoy holds what every translation needs of Envoy's API and nothing of Istio's: encoded resources and Sets of
// them, the memo that builds each resource once, interned lists of names, and small constructors for addresses, filters
// and config sources.
//
// Encoding is deterministic, inside every Any too: equal input has equal bytes and so equal versions. Nothing here
// reads a clock, a file or the network. Only Memo and NameInterner have state. It belongs to whoever makes one, and
// correctness never depends on it. Both are safe for concurrent use. The package starts no goroutine.
//
// A secret is a resource that is neither shown nor kept idle.
package envoy
