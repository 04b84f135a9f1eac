// Package terminal says whether the output of commands may have colours, breaks lines, and replaces the characters in
// texts that a terminal would interpret.
package terminal
