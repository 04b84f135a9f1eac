// Package e2e tests the control plane with real Envoys, end to end. The binary that users run serves a directory of
// YAML, pods are network namespaces with redirection, and requests of every protocol pass through them. If root starts
// the tests, they run as root and as an ordinary user, and otherwise as the user. Nothing is skipped: a machine that
// forbids user namespaces fails the tests.
//
// The test binary runs twice: outside it builds the control plane and chooses the users, and inside it is process 1 of
// the pods' namespaces. ENVOY, ENVOY_OLDEST and PILOT_DISCOVERY replace .tools/envoy, .tools/envoy-1.37 and a fresh
// build. Inside, one test at a time owns the network and the directory.
//
// # Guarantees
//
//   - Real Envoys and a gateway reject nothing and serve every protocol, over delta and state of the world:
//     [TestDelta], [TestStateOfTheWorld]. A route to a cluster that came with it fails no request:
//     [TestDelta/Subsets], [TestStateOfTheWorld/Subsets].
package e2e
