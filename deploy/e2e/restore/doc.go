// Package restore brings a mesh back from what docs/backup.md says must be kept: on another API server, and from a copy
// of a state folder. The tests run the commands of that document. Real Envoys of the old mesh and of the new one call
// each other meanwhile, each request over a connection of its own.
//
// There is no kubectl: commands_test.go does what its commands do.
//
// # Guarantees
//
//   - A mesh comes back on another cluster with the same identities and without a failed handshake:
//     [TestAnotherCluster].
//   - A copy of a state folder that is made while its server runs is the same CA, and accepts the same tokens:
//     [TestStateFolder].
package restore
