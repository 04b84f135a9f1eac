// Package diag holds Diagnostic: what is wrong with one user's object, said so that the user can mend it.
package diag
