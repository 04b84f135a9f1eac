// Package jwt is the feature of RequestAuthentication, which validates the tokens of requests.
//
// - jwt.go: what the feature declares, the key sets that a policy needs, and which of them applies to a rule.
// - filter.go: the filter for the rules that apply to a workload.
// - unsupported.go: findings about fields of a policy without the intended effect.
//
// A request without a token passes, unless a rule requires its token or an AuthorizationPolicy requires any. A request
// with a token passes if the token is valid by one of the rules. If rules require their tokens, all of these must be
// there, and no other token may be invalid. A rule whose keys are missing gets a key set for which there is no private
// key, so it accepts no token.
//
// The server fetches the keys of a jwksUri, or of an issuer that names its key set, as facts (pilot/facts/keysets). An
// option leaves that to proxies. The package is pure.
//
// # Guarantees
//
//   - A token passes if it is valid by a rule of a RequestAuthentication, and no other token does, also while the
//     server of its keys fails: [TestGoldens], [deploy/e2e/traffic.TestTokens], [deploy/e2e/traffic.TestServersOfKeys],
//     [deploy/e2e/traffic.TestGuard], [deploy/e2e/traffic.TestProxiesFetch]. Routes of gateways follow the claims of
//     valid tokens alone: [deploy/e2e/traffic.TestClaimsRoute].
//   - A request without a token that a rule requires is refused: [deploy/e2e/traffic.TestRequiredTokens].
//   - Envoys accept every rule that validation accepts: [TestEnvoysTakeWhatIsAccepted].
package jwt
