// Package diff computes what brings a client from one Union of resources to another, and what versions responses state
// for the result: once for all streams that need the same.
//
// A Cache holds the differences of Sets by their pointers, weakly. Versions holds the versions of one list of
// resources. Both are safe for concurrent use and hold nothing that nobody else has.
package diff
