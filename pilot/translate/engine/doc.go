// Package engine keeps Sets of resources up to date. It knows neither what the resources are nor how they are made:
// that is the task of generators.
//
// A generator divides a Set into partitions, such as hosts. A partition reads only what the Index holds for it. So when
// a Snapshot changes, only the partitions that scope.Dirty affects are invalidated and generated again. An unchanged
// Set keeps its pointer, so that comparing pointers shows that there is nothing to send.
//
// There are two kinds of generators: Generator makes all resources of a type (generator.go), and ByName makes those of
// a list of names (byname.go). One Cache holds the Sets of both (cache.go), with the history of what was dirty
// (history.go) and the conflicts that occurred (conflicts.go).
//
// The package runs no goroutine. The first caller that needs a Set generates it, and the others wait.
package engine
