// Package failclosed tests that an input which breaks never opens what it has closed: at a first start of the server,
// at a restart with connected proxies, and while it runs. Its witnesses are a real Envoy and a client of ADS that stay
// connected through restarts. A test fails if one of them is ever sent something more open than it had.
//
//   - rows_*_test.go: the inputs, and what an error in each does. docs/security/inputs.md is made of them.
//   - run_test.go: how one row is run. table_test.go: the document.
//   - posture_test.go: what a proxy refuses, and which of two states is more open.
//   - envoy_test.go, client_test.go: the witnesses.
//
// All tests that need an API server share one, which runs until the last test has ended.
//
// To add an input, add a row: the objects that close something, the same world without them or with a laxer version,
// and the errors, each with what becomes of it. With -short, only the first error of each pair of outcomes
// runs: put the most telling error first. Then write the document with
//
//	go test ./deploy/e2e/failclosed -run TestDocument -args -update
//
// # Guarantees
//
//   - No input opens by breaking what it closes, at a start, at a restart or while the server runs: [TestFiles],
//     [TestObjects], [TestPolicies], [TestGateways], [TestMeshConfig], [TestNetworks], [TestConfigSource], [TestCA],
//     [TestCAOfAPIServer], [TestSecrets], [TestSecretsOfAPIServer], [TestInjection], [TestAPIServer],
//     [TestRemoteCluster]. docs/security/inputs.md has the table: [TestDocument].
package failclosed
