// Package node reads what a proxy says of itself when it connects: the Envoy node's id and metadata, as behaviour of
// the Istio agents fixes them. It also writes such a node, for a bootstrap.
//
// Input comes from peers that nobody has authenticated: every value is bounded and checked, and wrong types are errors,
// never panics.
package node
