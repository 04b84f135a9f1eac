// Package limits defines all bounds on input and work of the server in one struct, so that each can be read, shown at
// /debug/limits and changed in one place. The backoff after failed requests to API servers is constant.
//
// The package enforces nothing: the owner of a resource reads its field, refuses requests that exceed it and counts the
// refusals. The package has no state.
//
// # Guarantees
//
//   - The cost of a YAML file is bounded before the file is parsed: [TestYAMLNodes]. The subsets of a host are
//     bounded: [TestSubsets].
package limits
