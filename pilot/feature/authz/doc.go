// Package authz is the feature of authorization: AuthorizationPolicies decide who may ask a workload for what.
//
//   - authz.go: the feature of policies that proxies evaluate themselves, of actions AUDIT, DENY and ALLOW.
//   - custom.go: the feature of policies by which proxies ask an authorizer, of action CUSTOM.
//   - filter.go: the filters of chains, by action.
//   - provider.go: the filters that ask the authorizers of the mesh configuration.
//   - rule.go: a rule as what it demands of the operation and of the source.
//   - operation.go, source.go, token.go, condition.go: what each attribute demands.
//   - match.go, trustdomain.go: how values are matched.
//   - unsupported.go: findings about policies and providers.
//
// The two features have filters of one kind at different places: authorizers are asked before tokens are validated, and
// the other policies are evaluated after.
//
// What cannot be evaluated never opens anything. A rule that allows is left out whole. A rule that denies, logs or asks
// is without the condition, and so matches more. The package is pure.
//
// # Guarantees
//
//   - Filters match what a rule says, and a condition that cannot be evaluated opens nothing: [TestGoldens],
//     [TestStars], [TestRequestPrincipals], [TestTrustDomains].
//   - For random policies and requests the filters decide what Istio's documentation says, and so do real Envoys of
//     the newest and the oldest version: [TestDecisions], [TestEnvoysDecide]. Envoys accept every policy that
//     validation accepts, whatever texts are in it: [TestEnvoysTakeWhatIsAccepted].
//   - Real Envoys accept and refuse requests by the policies, and ask authorizers: [deploy/e2e/traffic.TestPolicies],
//     [deploy/e2e/traffic.TestGateway]. A path in another spelling is denied where the mesh's normalization makes it
//     the same: [deploy/e2e/traffic.TestNormalization].
package authz
