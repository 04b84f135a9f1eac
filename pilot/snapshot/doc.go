// Package snapshot holds everything a translation may read, frozen at one revision, and the Builder that makes one revision after another from changes.
//
// A Snapshot is immutable: whoever holds one may read it from any goroutine, for as long as they like. The Builder is called by one goroutine and owns its
// tables; it copies what a change touches and shares the rest. Nothing here knows Envoy, a client, a file or a clock.
package snapshot
