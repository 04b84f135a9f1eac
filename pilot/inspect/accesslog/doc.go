// Package accesslog reads what users copy from a failed request: a line of Envoy's access log in any of the formats of
// a mesh, the body of a response that Envoy gives itself, or response flags and details alone. It says what each
// response flag and each detail means.
//
// A format is the text with commands, or the JSON object of such texts, that the mesh configuration has. A line is
// matched with the format's literals, so that each command yields its value.
//
// The package is pure and has no state.
//
// # Guarantees
//
//   - Each response flag of Envoy's documentation has a meaning: [TestFlags].
//   - Lines of real Envoys, in text and in JSON, are read: [TestLines]. No text makes it fail in another way than by an
//     error: [FuzzParse].
package accesslog
