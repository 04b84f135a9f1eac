// Package bench runs the measuring command of deploy/bench once on a small world, so that it works when it is needed.
// It measures nothing worth keeping.
package bench
