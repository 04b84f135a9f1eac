// Package mutants shows that tests notice faults of caches and of invalidation. Its table holds one small change to the
// code for each fault, and the test that must fail with the change. The tree itself is never edited: `go test -overlay`
// compiles the changed file instead of the original.
//
// It is only for tests and has no state.
//
// # Guarantees
//
//   - Each mutant fits the tree: [TestTableFitsTheTree], and its test fails with it: [TestMutants] (make mutants).
package mutants
