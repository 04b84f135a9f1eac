// Package envoy holds what every translation needs of Envoy's API and nothing of Istio's: encoded resources and sets of them, the memo that makes each
// once, lists of names, and small constructors for addresses, filters and config sources.
//
// Encoding is deterministic, inside every Any too, so that equal input gives equal bytes and thereby equal versions. Nothing here reads a clock, a file or
// the network; Memo and NameTable alone are state, which belongs to whoever makes one and is safe for concurrent use; correctness never rests
// on it. The package starts no goroutine.
package envoy
