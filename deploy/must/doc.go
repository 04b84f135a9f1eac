// Package must ends a test at an error that no step of the test may have.
package must
