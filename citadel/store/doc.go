// Package store keeps a self-signed CA and reads one that is plugged in.
//
//   - state.go: a rotation.State as named files, for whatever holds it.
//   - folder.go: a folder that holds it, where there is no Kubernetes.
//   - secret.go: a Kubernetes Secret that holds it.
//   - kept.go: writes a State again that was deleted while a server runs.
//   - plugged.go: the folder of a CA that is plugged in, which is only read.
//
// A State is written whole or not at all, and never over one that somebody else has written in between: of two servers
// that start together one makes the CA, and the other takes it.
//
// # Guarantees
//
//   - A CA that is deleted while servers run is written again, and never replaced by a new one: [TestDeleted].
//   - Each step of a rotation is stored whole, and servers that start together have one CA: [TestRotationIsStored],
//     [TestKilled], [TestServersThatStartTogether], [TestFolder], [TestFolderIsReadWhileItChanges], [TestBrokenState].
//     If the root expired while servers were off, the next one signs: [TestServersWereOff].
//   - A plugged-in CA is read whole or refused: [TestPlugged], [TestPluggedLinks], [TestPluggedByOpenSSL].
//   - A folder that another user may have read or replaced is refused before anything is written there:
//     [TestFolderOfOthers].
package store
