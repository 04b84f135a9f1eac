// Package limits holds every bound that the server puts on what others send it or make it do, in one struct, so that
// each can be read, shown at /debug/limits and changed in one place. The pauses after failed requests to API servers
// are constants.
//
// It enforces nothing: whoever holds a resource reads its field, refuses what exceeds it and counts the refusal. The
// package has no state.
//
// # Guarantees
//
//   - The cost of a YAML file is bounded before the file is parsed: [TestYAMLNodes]. The subsets of a host are
//     bounded: [TestSubsets].
package limits
