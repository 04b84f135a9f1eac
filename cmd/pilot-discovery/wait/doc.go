// Package wait has the command wait, which ends when all connected proxies have an object in force.
package wait
