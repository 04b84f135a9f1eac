// Package pages unmaps the pages of the program's own file, most of which only the start of a program uses. It owns no
// state and runs no goroutine.
//
// # Guarantees
//
//   - Memory that is not used goes back to the kernel: [TestPagesAreReleased].
package pages
