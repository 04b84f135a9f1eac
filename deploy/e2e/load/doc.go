// Package load sends requests at a fixed rate, whether or not earlier ones were answered, and counts answers by server
// and failures.
//
// Start runs one goroutine that keeps the rate, and one for each request in flight. Stop waits for all of them.
package load
