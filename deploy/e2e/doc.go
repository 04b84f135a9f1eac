// Package e2e tests the control plane with real Envoys, end to end: a directory of YAML is served by the binary that
// users run, pods are network namespaces with redirection, and requests of every protocol go through them. Its tests
// run as root and as an ordinary user where they are started as root, else as that user; nothing is skipped, and a
// machine that forbids user namespaces fails them.
//
// The test binary runs itself twice over: outside it builds the control plane and chooses the users, inside it is
// process 1 of the pods' namespaces. ENVOY, ENVOY_OLDEST and PILOT_DISCOVERY name other binaries than .tools/envoy,
// .tools/envoy-1.37 and a fresh build. Inside, one test at a time owns the network and the directory.
//
// # Guarantees
//
//   - Real Envoys and a gateway reject nothing and serve every protocol, over delta and state of the world:
//     [TestDelta], [TestStateOfTheWorld]. A route to a cluster that came with it fails no request:
//     [TestDelta/Subsets], [TestStateOfTheWorld/Subsets].
package e2e
