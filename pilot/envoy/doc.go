// Package envoy holds what every translation needs of Envoy's API and nothing of Istio's: encoded resources and sets of them, the memo that makes each
// once, and small constructors for addresses, filters and config sources.
//
// Encoding is deterministic, inside every Any too, so that equal input gives equal bytes and thereby equal versions. Nothing here reads a clock, a file or
// the network; the memo alone is state, safe for concurrent use, and correctness never rests on it.
package envoy
