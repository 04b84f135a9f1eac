// Package snapshot holds a Snapshot, which is everything a translation may read, frozen at one revision, and the
// Builder that makes one revision after another from changes.
//
// A Snapshot is immutable: any goroutine may read it, for any time. Its tables share memory with those of the revision
// before, so a commit costs in proportion to its changes. The Builder is used by one goroutine and owns the tables that
// are being edited. A commit without changes returns the last Snapshot again. A Diff lists what changed in a commit.
//
// The package knows no Envoy, client, file or clock.
//
// # Guarantees
//
//   - A Diff lists each change, and a write that changes nothing for a reader makes no Snapshot: [TestDiff]. An object
//     that is written without a change keeps its pointer: [TestEqualObjectKeepsItsPointer].
package snapshot
