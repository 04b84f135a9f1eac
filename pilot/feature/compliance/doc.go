// Package compliance is the feature of the policy that COMPLIANCE_POLICY names: the findings about TLS settings that
// have no effect beside it. The packages that make TLS contexts limit them, by api/compliance. The package is pure.
//
// # Guarantees
//
//   - Every TLS context of proxies keeps to the policy, and a setting without effect is a finding: [TestGoldens].
package compliance
