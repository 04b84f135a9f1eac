// Package selection indexes label selectors and their members. For a change of either it finds the other in time
// proportional to the matches.
//
// An Index is owned and used by one goroutine. Results are unordered.
package selection
