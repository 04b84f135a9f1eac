// Package terminal says whether what commands print may have colours.
package terminal
