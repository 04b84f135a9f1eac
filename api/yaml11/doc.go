// Package yaml11 reads the scalars of a YAML tree as kubectl, Helm and Istio do. They read YAML 1.1: without quotes,
// yes, no, on, off, y and n are booleans, and the name of a field may be a number. The parser that says where a value
// stands reads YAML 1.2.
//
// # Guarantees
//
//   - Scalars have the value that kubectl reads: [TestScalars].
package yaml11
