// Package translate makes Envoy's configuration from a Snapshot: pure functions from (Snapshot, cohort) to Sets of
// resources.
//
// Translator is the entry point. A builder makes each resource from one comparable key, which holds everything that the
// resource depends on; an envoy.Memo stores the resource under that key. The key is also the reason why the bytes are
// what they are. No key holds a Snapshot.
//
// Sets are cached (cache.go). A generator (generator.go) divides a Set into partitions, such as hosts. When a Snapshot
// changes, only the partitions that scope.Dirty affects are invalidated and generated again. A Set in which nothing
// changed keeps its pointer, so that comparing pointers shows that there is nothing to send. What proxies subscribe to
// by name is cached in the same way (subscriptions.go).
//
// The package runs no goroutine. The first caller that needs a Set generates it, and the others wait.
package translate
