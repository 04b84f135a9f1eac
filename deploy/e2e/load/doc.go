// Package load sends requests at a fixed rate, whether or not earlier ones were answered, and counts who answered and
// what failed.
//
// Start runs one goroutine that keeps the rate and one for each request under way; Stop waits for all of them.
package load
