// Package check tests pilot-discovery check with a real API server and a control plane that the charts install: all is
// well, then something breaks, and the command that a red line names mends it.
package check
