// Package input has the flags that select what a command reads: a directory, a cluster, a mesh configuration. It reads
// each once.
package input
