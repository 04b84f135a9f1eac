// Package armor parses whole PEM texts: a malformed part is an error that names it, and is never skipped. Text around
// the blocks is allowed, as tools such as openssl write it.
//
// # Guarantees
//
//   - PEM is read whole or refused, by the labels that Envoy reads: [TestWhole], [TestLabels], [TestKeyPair].
package armor
