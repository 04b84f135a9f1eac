// Package check tests pilot-discovery check with a real API server and a control plane that the charts install. Nothing
// is wrong at first. Then something breaks, and the command that a red line names corrects it.
package check
