// Package armor reads texts of PEM as a whole: a part that cannot be read is an error that says which, and is never
// left out in silence. Text before, between and behind the blocks is allowed, as tools such as openssl write it.
//
// # Guarantees
//
//   - PEM is read whole or refused, by the labels that Envoy reads: [TestWhole], [TestLabels], [TestKeyPair].
package armor
