// Package controlplane runs pilot-discovery as a separate process, as a user would: from a directory of YAML or an API
// server, on free ports.
//
// The caller of Start owns the Process. A Process runs one goroutine, which waits for the process to end.
package controlplane
