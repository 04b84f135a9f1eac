// Package histories decides with which seed a test of random histories begins. The tests that draw from rapid read the
// environment variable RAPID_SEED by themselves; all others ask here, so that one variable holds for every history.
//
// It is for tests alone and has no state.
package histories
