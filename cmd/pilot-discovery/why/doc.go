// Package why has the command why, which says what happens to a request, and why.
package why
