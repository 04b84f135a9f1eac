// Package ingest is what happens to changes before there is a snapshot.
//
// The Throttle gathers the changes of all sources into commits. Its rules are pure; one goroutine, which it owns, calls
// commit.
//
// Nothing here knows Envoy or xDS.
package ingest
