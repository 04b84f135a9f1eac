// Package explain says what each code of findings means, with an example and what mends it. The texts are in
// findings.md, and are embedded: what nobody asks for costs no memory but the pages of the program's file.
//
// # Guarantees
//
//   - Each entry has a text, an example and a remedy: [TestEntriesAreWhole].
package explain
