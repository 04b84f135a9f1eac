// Package frozen holds immutable lists and tables. Many versions of one table are cheap: they share what is equal.
//
// List is immutable and comparable: two lists of equal content are equal by ==, so that a list can be part of a memo's
// key. Lists are interned by the standard library's package unique, which drops a list once nobody refers to it. Table
// is an immutable sorted list. It shares memory with the table that it was made from.
//
// The package does not depend on what the lists and tables hold, and starts no goroutine.
//
// # Guarantees
//
//   - A table has the content that its edits describe, in any order, and a frozen table never changes:
//     [TestTableAgreesWithMap].
package frozen
