// Package node reads what a proxy says of itself when it connects: the Envoy node's id and metadata, as behaviour of
// the Istio agents fixes them. It also writes such a node, for a bootstrap.
//
// Input comes from peers that nobody has authenticated: every value is bounded and checked, and wrong types are errors,
// never panics.
//
// # Guarantees
//
//   - A parsed node does not keep the message in memory that it came in: [TestParseFreesTheMessage].
//   - Metadata of any JSON type is parsed or refused, without a panic: [TestParseKinds], [FuzzParse].
//   - Each entry of the metadata has an effect, or a notice says why it has none: [TestFieldsAreRead], [TestNotices].
package node
