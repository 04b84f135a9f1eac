// Package node parses the node that a proxy sends when it connects: the id and metadata of an Envoy node, in the form
// of Istio's agents. It also formats such a node, for a bootstrap.
//
// Input comes from unauthenticated peers, so every value is bounded and checked, and wrong types are errors, never
// panics.
//
// # Guarantees
//
//   - A parsed node does not keep the message in memory that it came in: [TestParseFreesTheMessage].
//   - Metadata of any JSON type is parsed or refused, without a panic: [TestParseKinds], [FuzzParse].
//   - Each entry of the metadata has an effect, or a notice says why it has none: [TestFieldsAreRead], [TestNotices].
package node
