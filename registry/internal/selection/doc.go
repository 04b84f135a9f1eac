// Package selection indexes label selectors and what they select. For a change of either it finds the other in time
// proportional to the matches.
//
// An Index is owned and used by one goroutine. It returns nothing in order; the caller sorts.
package selection
