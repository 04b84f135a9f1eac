// Package credentials is about what Secrets and ConfigMaps hold for TLS: certificates with their keys, and CA
// certificates.
//
//   - references.go: which of them an object names, and where.
//   - parse.go: what is in one, and what is wrong with it.
//   - credential.go: the result, which is never shown.
//
// What is parsed here an Envoy takes: it is encoded anew, without what stands between or behind the certificates. The
// package is pure: the time is an argument.
//
// # Guarantees
//
//   - Only a valid certificate with its own key is served from a Secret, and Envoy accepts it: [TestOfSecret],
//     [TestEnvoysTakeWhatIsAccepted].
//   - The content of a Secret is never printed: [TestCredentialIsPrintedRedacted].
package credentials
