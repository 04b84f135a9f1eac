// Package snapshot holds everything a translation may read, frozen at one revision, and the Builder that makes one revision after another from changes.
//
// A Snapshot is immutable: whoever holds one may read it from any goroutine, for as long as they like. Its tables share with those of the revision before what is the
// same, so a commit costs what it changes. The Builder is called by one goroutine and owns the tables in the making; a commit of nothing is the last Snapshot again.
// Nothing here knows Envoy, a client, a file or a clock.
package snapshot
