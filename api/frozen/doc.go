// Package frozen holds List, an immutable list that is comparable: lists of equal content are equal by ==, so that a list can be part of a memo's key.
// Lists are interned by the standard library's package unique, which forgets what nobody holds.
package frozen
