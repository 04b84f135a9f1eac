// Package compliance limits TLS to a policy, which the variable COMPLIANCE_POLICY names. Its values are Istio's:
//
//	fips-140-2   TLS 1.2; ECDHE with AES-GCM; P-256
//	fips-140-3   TLS 1.2 and 1.3; ECDHE with AES-GCM, or in TLS 1.3 AES-GCM; P-256 and P-384
//	pqc          TLS 1.3; AES-GCM; X25519MLKEM768
//
// go.go limits configurations of crypto/tls, and envoy.go TLS parameters of Envoy. Other settings may narrow a policy
// and never widen it; Ineffective names the settings that have no effect beside a policy. A policy is about algorithms:
// it does not say whether the cryptographic modules of the programs are validated.
//
// The package has no state and runs no goroutine. Apart from arguments, its input is whether the process runs in Go's
// FIPS 140-3 mode.
//
// # Guarantees
//
//   - Connections of crypto/tls use only what the policy allows, whatever the other side offers: [TestHandshakes]. A
//     cipher suite of TLS 1.3 is checked at the end of the handshake, because crypto/tls has no setting for it:
//     [TestCipherSuiteIsChecked].
//   - TLS parameters of Envoy are never wider than the policy, nor than they were where Envoy lets both hold:
//     [TestRestrict], [deploy/e2e/gatewaytls.TestCompliance]. A setting that Envoy does not follow is named:
//     [TestIneffective].
package compliance
