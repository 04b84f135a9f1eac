// Package selection indexes label selectors and what they select, so that a change of either finds the other in time proportional to the matches.
//
// An Index is a plain state owned by its caller's goroutine. It orders nothing: who needs an order sorts.
package selection
