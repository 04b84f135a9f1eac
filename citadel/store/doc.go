// Package store keeps a self-signed CA and reads one that is plugged in.
//
//   - state.go: encodes a rotation.State as named files, and takes its steps.
//   - folder.go: a Store in a folder, without Kubernetes.
//   - secret.go: a Store in a Kubernetes Secret.
//   - kept.go: writes a State again if it is deleted while a server runs.
//   - plugged.go: reads the folder of a plugged-in CA.
//
// A State is written whole or not at all, and never over a concurrent change: if two servers start together, one
// creates the CA and the other loads it.
//
// # Guarantees
//
//   - A server that has a CA in memory writes it again if it is deleted, and never makes a new one: [TestDeleted].
//   - Each step of a rotation is stored whole, and servers that start together have one CA: [TestRotationIsStored],
//     [TestKilled], [TestServersThatStartTogether], [TestFolder], [TestFolderIsReadWhileItChanges], [TestBrokenState].
//     If the root expired while servers were off, the next one signs: [TestServersWereOff].
//   - A plugged-in CA is read whole or refused: [TestPlugged], [TestPluggedLinks], [TestPluggedByOpenSSL].
//   - A folder that another user may have read or replaced is refused before anything is written there:
//     [TestFolderOfOthers].
package store
