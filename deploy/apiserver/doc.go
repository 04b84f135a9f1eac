// Package apiserver is as much of an API server as controllers need in tests: it lists, watches, creates, patches,
// updates and deletes objects of any kind, tells its version, and fails where a test says so.
//
// A Server is an http.Handler, for a server that listens, and an http.RoundTripper, which calls it within the process.
// The second one works with a fake clock (testing/synctest).
//
// State: a Server's, under its lock. A request through RoundTrip has a goroutine of its own.
package apiserver
