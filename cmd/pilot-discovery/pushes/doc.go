// Package pushes has the command pushes, which lists what a server has sent lately, why, and how long it took.
package pushes
