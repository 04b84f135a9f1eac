// Package pages unmaps the pages of the program's own file, most of which only the start of a program uses. It owns no
// state and runs no goroutine.
package pages
