// Package diff compares what the proxies of a mesh are sent at two Snapshots: which proxies get a difference, which of
// their resources are added, changed and removed, in which fields, and which changed objects are the cause.
//
// The result is a pure function of the Snapshots, the proxies and a Translator. A Comparer caches what it read of
// resources, and is used by one goroutine. It compares the proxies of one cohort once and skips Sets with the same
// pointer, so that a comparison costs no more than the differences.
package diff
