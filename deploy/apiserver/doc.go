// Package apiserver is a small API server for tests of controllers. It lists, watches, creates, patches, updates and
// deletes objects of any kind, reports its version, and fails as a test requires.
//
// A Server is an http.Handler, for a server that listens, and an http.RoundTripper, which calls it within the process.
// The second works with a fake clock (testing/synctest).
//
// A Server guards its state with a lock.
package apiserver
