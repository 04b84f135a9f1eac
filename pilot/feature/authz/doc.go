// Package authz is the feature of authorization: AuthorizationPolicies decide which peers may send a workload which
// requests.
//
// - authz.go: the feature of policies that proxies evaluate themselves, of actions AUDIT, DENY and ALLOW.
// - custom.go: the feature of policies by which proxies ask an external authorizer, of action CUSTOM.
// - filter.go: the filters of chains, by action.
// - provider.go: the filters that ask the authorizers of the mesh configuration.
// - rule.go: a rule as conditions on the operation and on the source.
// - operation.go, source.go, token.go, condition.go: the conditions for each attribute.
// - match.go, trustdomain.go: how values are matched.
// - unsupported.go: findings about policies and providers.
//
// The two features have filters of one kind at different places: authorizers are asked before tokens are validated, and
// the other policies are evaluated after.
//
// A condition that cannot be evaluated never allows anything. An ALLOW rule that has one is left out. A DENY, AUDIT or
// CUSTOM rule loses the condition, and so matches more. The package is pure.
//
// # Guarantees
//
//   - Filters match what a rule says, and a condition that cannot be evaluated opens nothing: [TestGoldens],
//     [TestStars], [TestRequestPrincipals], [TestTrustDomains].
//   - For random policies and requests the filters decide what Istio's documentation says, and so do real Envoys of the
//     newest and the oldest version: [TestDecisions], [TestEnvoysDecide]. Envoys accept every policy that validation
//     accepts, with any texts in it: [TestEnvoysTakeWhatIsAccepted].
//   - Real Envoys allow and deny requests by the policies, and ask authorizers: [deploy/e2e/traffic.TestPolicies],
//     [deploy/e2e/traffic.TestGateway]. A path in another spelling is denied if the mesh's normalization makes it the
//     same: [deploy/e2e/traffic.TestNormalization].
package authz
