// Package snapshot defines the Snapshot, an immutable revision of everything that translations may read, and the
// Builder, which makes each revision from the previous one and changes.
//
// Any goroutine may read a Snapshot, for any time. Its tables share memory with the previous revision, so a commit
// costs in proportion to its changes. Only one goroutine may use the Builder, which owns the tables being edited. A
// commit without changes returns the last Snapshot. A Diff lists the changes of a commit.
//
// The package depends on no Envoy, client, file or clock.
//
// # Guarantees
//
//   - A Diff lists each change, and a write that changes nothing for a reader makes no Snapshot: [TestDiff]. An object
//     that is written without a change keeps its pointer: [TestEqualObjectKeepsItsPointer].
package snapshot
