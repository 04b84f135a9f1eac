// Package house holds the rules of this source tree as code: who may import whom, what pure packages must not use,
// where state, goroutines and keys of labels may be. Documents may name only tests and folders that exist, and link
// only to files that exist. The map is short, each decision has a status, and each guarantee of a package names a test.
//
// It reads source text only: it neither builds nor runs anything, and its findings name files, so they can be read like
// a compiler's.
//
// # Guarantees
//
//   - Imports follow the layers, and only the catalog imports features. Pure packages use no clock, file or network.
//     No package has mutable state. Goroutines start through safe.Go. Files stay short, documents link to what exists
//     and name tests that exist: [TestTree].
//   - Each of these rules finds a planted violation: [TestPlantedViolations].
//   - A test that draws at random begins with a seed that can be set: [TestRandomTestsHaveSeeds].
//   - Each direct dependency has a reason in docs/dependencies.md: [TestDependencies]. A part of the long tier that
//     was not reached is no failure: [TestLongTier].
//   - The tools of the tests are built from the versions of modules that the control plane has: [TestTools].
package house
