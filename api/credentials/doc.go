// Package credentials parses the TLS content of Secrets and ConfigMaps: certificates with their keys, and CA
// certificates.
//
//   - references.go: which Secrets and ConfigMaps an object names, and where.
//   - parse.go: the content of one, and its faults.
//   - credential.go: the result, which is never printed.
//
// Envoy accepts every credential that this package returns: it is encoded again, without text between or behind the
// certificates. The package is pure: time is an argument.
//
// # Guarantees
//
//   - Only a valid certificate with its own key is served from a Secret, and Envoy accepts it: [TestOfSecret],
//     [TestEnvoysTakeWhatIsAccepted].
//   - The content of a Secret is never printed: [TestCredentialIsPrintedRedacted].
package credentials
