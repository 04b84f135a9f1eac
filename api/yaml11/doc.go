// Package yaml11 interprets the scalars of a YAML tree as kubectl, Helm and Istio do. They use YAML 1.1: without
// quotes, yes, no, on, off, y and n are booleans, and the name of a field may be a number. The parser that knows
// positions uses YAML 1.2.
//
// # Guarantees
//
//   - Scalars have the value that kubectl reads: [TestScalars].
package yaml11
