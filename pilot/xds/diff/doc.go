// Package diff computes the difference between two Unions of resources and the versions in responses, once for all
// streams that need them.
//
// A Cache holds the differences of Sets weakly, by pointer. Versions holds the versions of one list of resources. Both
// are safe for concurrent use and keep no Set alive.
package diff
