// Package bench runs the command of deploy/bench once on a small world, so that it is known to work. The figures mean
// nothing.
package bench
