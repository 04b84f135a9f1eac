// Package archive keeps the last versions of the objects that have changed lately: the snapshot that put each in force,
// its author, the number of proxies that it concerned, and its content.
//
// A version of an object has a number, which is the generation that its API server gave it. A kind without generations,
// and an object in a file, has a hash of its content instead. A write that changes neither the generation nor labels
// nor annotations, such as one to the status, is no new version. A deletion is a version.
//
// The first load is not kept, so memory does not grow with the mesh: the first version of such an object is kept once
// the object changes. An object without versions has not changed since the start, or its versions were dropped. In both
// cases it has not changed after the revision of the newest dropped version, which is the floor. Objects, versions of
// each object, and bytes of content are bounded. Kinds that controllers write all the time, such as EndpointSlice, have
// bounds of their own and neither content nor authors.
//
// The content of a Secret is never kept, shown or hashed ahead of a question.
//
// The committing goroutine adds versions, which costs no encoding: another goroutine calls Encode. A mutex guards all
// state. No goroutine runs here, and callers pass the time.
//
// # Guarantees
//
//   - Status writes and equal objects are no versions; deletions, other labels and other UIDs are: [TestVersions].
//   - Objects, versions and bytes are bounded, and what was dropped is never newer than the floor: [TestBounds].
//   - A Secret is in no content and no hash that is shown: [TestSecrets].
//   - A version that is not used as it is written is marked. The last good version that stays in force is not:
//     [TestRefuse].
//   - The command that brings a version back restores it, whatever its texts hold, and is missing for a version that
//     was not in force as written: [TestRestore].
package archive
