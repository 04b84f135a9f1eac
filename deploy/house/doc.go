// Package house holds the rules of this source tree as code: imports between packages, pure packages, package state,
// goroutines, keys of labels, the width of lines, and the words of comments and documents. Documents may only name
// tests that exist, and link to files that exist. The test applies the rules to the tree. It also plants a violation of
// each rule to show that the rule finds it.
//
// The package reads source text only. It neither builds nor runs anything, and its findings name files and lines.
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
