// Package child starts programs that end with the test which started them.
//
// Each has one goroutine, with a thread of its own, which waits for the program to end.
package child
