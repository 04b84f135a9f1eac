// Package histories controls the length of tests that compute much: the seed of random histories, and their number
// under the race detector.
//
// Tests with rapid read the environment variable RAPID_SEED themselves, and all others ask this package, so one
// variable sets the seed of every history. The race detector slows a test five to ten times. A test without goroutines
// runs completely without the detector, in `make norace`. Under the detector it is skipped (NoRace) or makes fewer
// checks (FewerWithRace).
//
// It is only for tests and has no state.
//
// # Guarantees
//
//   - Under the race detector a test makes a fifth of its checks, and a test without goroutines makes none; without it
//     each test makes all of them: [TestLength].
package histories
