// Package child starts programs that end with the test that started them.
//
// Each program has one goroutine with its own thread, which waits for the program to end.
package child
