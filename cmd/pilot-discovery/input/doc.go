// Package input has the flags that say what a command reads: a directory, a cluster, a mesh configuration. It reads
// them once.
package input
