// Package pushes has the command pushes, which lists the recent pushes of a server with their causes and durations, and
// the last versions of an object.
package pushes
