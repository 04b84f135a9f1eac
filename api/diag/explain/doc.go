// Package explain describes each code of findings, with an example and the remedy. The texts are in findings.md, which
// is embedded, so unread texts use no memory except the pages of the program's file.
//
// # Guarantees
//
//   - Each entry has a text, an example and a remedy: [TestEntriesAreWhole].
package explain
