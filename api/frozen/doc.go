// Package frozen provides immutable lists and tables. Versions of a table share their equal parts, so many versions are
// cheap.
//
// List is immutable and comparable: two lists of equal content are equal by ==, so a list can be part of a memo's key.
// The standard library's package unique interns lists, and drops a list that is no longer referenced. Table is an
// immutable sorted list. It shares memory with the table that it was made from.
//
// The package does not depend on what the lists and tables hold, and starts no goroutine.
//
// # Guarantees
//
//   - A table has the content that its edits describe, in any order, and a frozen table never changes:
//     [TestTableAgreesWithMap].
package frozen
