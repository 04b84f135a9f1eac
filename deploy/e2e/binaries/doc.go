// Package binaries copies the programs that tests run, Envoy and the control plane, to a folder that every user can
// read, so that a test may run them as another user.
//
// It builds with the go command and downloads nothing. It has no state and runs no goroutine.
package binaries
