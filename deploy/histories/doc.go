// Package histories decides how long tests take that compute much: with which seed random histories begin, and how many
// there are under the race detector.
//
// The tests that draw from rapid read the environment variable RAPID_SEED by themselves; all others ask here, so that
// one variable holds for every history. The race detector slows a test five to ten times. A test that starts no
// goroutine runs whole without it, in `make norace`; with it, it is left out (NoRace) or draws less (FewerWithRace).
//
// It is for tests alone and has no state.
//
// # Guarantees
//
//   - Under the race detector a test makes a fifth of its checks, and a test without goroutines makes none; without it
//     each test makes all of them: [TestLength].
package histories
