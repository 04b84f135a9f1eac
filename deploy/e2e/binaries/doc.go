// Package binaries gathers the programs that tests run, Envoy and the control plane, in a folder that every user can
// read, so that a test may run them as somebody else.
//
// It builds with the go command and fetches nothing. It owns no state and runs no goroutine.
package binaries
