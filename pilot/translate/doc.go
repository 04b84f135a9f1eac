// Package translate makes Envoy's configuration of a Snapshot: pure functions from (Snapshot, cohort) to Sets of resources.
//
// Translator is the way in. Each resource is made by a builder from one comparable key that holds everything it depends on, and remembered under that key
// by an envoy.Memo; the key is also why the bytes are what they are. No key holds a Snapshot. Sets are kept (kept.go): each is made from the one before by those of its
// units, hosts or places, of which scope.Dirty speaks, and is the same pointer when nothing came out different, so that whoever compares Sets sees at once that
// nothing changed. It runs no goroutine; whoever needs a Set first makes it, and the others wait.
package translate
