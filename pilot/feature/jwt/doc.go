// Package jwt is the feature of RequestAuthentication, which validates the tokens of requests.
//
//   - jwt.go: what the feature declares, the key sets that a policy needs, and which of them applies to a rule.
//   - filter.go: the filter of the rules that apply to a workload.
//   - unsupported.go: what of a policy has no effect, or not the intended one.
//
// A request without a token passes; to require one is for an AuthorizationPolicy. A request with a token passes if the
// token is valid by one of the rules. A rule whose keys are missing has the key set that nobody can sign for, so it
// accepts no token.
//
// The server fetches the keys of a jwksUri, or of an issuer that says where they are, as facts (pilot/facts/keysets).
// Options may leave it to proxies. The package is pure.
//
// # Guarantees
//
//   - A token passes if it is valid by a rule of a RequestAuthentication, and no other token does, whatever becomes of
//     the server of its keys: [TestGoldens], [deploy/e2e/traffic.TestTokens], [deploy/e2e/traffic.TestServersOfKeys],
//     [deploy/e2e/traffic.TestGuard], [deploy/e2e/traffic.TestProxiesFetch]. Routes of gateways follow the claims of
//     valid tokens alone: [deploy/e2e/traffic.TestClaimsRoute].
//   - Envoys accept every rule that validation accepts: [TestEnvoysTakeWhatIsAccepted].
package jwt
