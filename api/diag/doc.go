// Package diag defines Diagnostic, a description of a fault in a user's object that tells the user how to correct it.
package diag
