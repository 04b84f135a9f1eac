// Package frozen holds what never changes once it is made, and is cheap to have many of.
//
// List is an immutable list that is comparable: lists of equal content are equal by ==, so that a list can be part of a memo's key. Lists are interned by the standard
// library's package unique, which forgets what nobody holds. Table is an immutable sorted list that shares with the one that it was made from what they have in common.
//
// It knows nothing of what it holds, and runs no goroutine.
package frozen
