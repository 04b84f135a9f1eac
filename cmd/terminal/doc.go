// Package terminal says whether what commands print may have colours, breaks lines, and removes from texts the
// characters that a terminal would follow.
package terminal
