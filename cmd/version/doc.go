// Package version returns the version of a program, and the command that prints it, as Istio's tools do.
package version
