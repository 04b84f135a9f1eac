// Package controlplane runs pilot-discovery as a process of its own, as a user would: from a directory of YAML or an
// API server, on ports that are picked free.
//
// A Process is owned by whoever started it; it runs one goroutine, which waits for the process to end.
package controlplane
