// Package translate makes Envoy's configuration of a Snapshot: pure functions from (Snapshot, cohort) to Sets of resources.
//
// Translator is the way in. Each resource is made by a builder from one comparable key that holds everything it depends on, and remembered under that key
// by an envoy.Memo; the key is also why the bytes are what they are. No key holds a Snapshot. Sets are kept for the newest Snapshot, and one that came out
// with the very resources of the Snapshot before is the same pointer, so that whoever compares Sets sees at once that nothing changed.
package translate
