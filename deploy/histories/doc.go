// Package histories decides how long tests take that compute much: with which seed random histories begin, and how many
// there are under the race detector.
//
// The tests that draw from rapid read the environment variable RAPID_SEED by themselves; all others ask here, so that
// one variable holds for every history. The race detector slows a test five to ten times. A test that starts no
// goroutine runs whole without it, in `make norace`; with it, it is left out (NoRace) or draws less (FewerWithRace).
//
// It is for tests alone and has no state.
package histories
