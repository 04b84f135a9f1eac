// Package aggregate makes one source of configuration out of several, in order of precedence.
//
// Of several objects with one key, the object of the first source counts. When that source deletes it, the object of
// the next source takes its place. A change of an object that does not count changes nothing. When the object that
// counts is replaced by an equal one of another source, the old pointer stays and nothing changes. A key that several
// sources have is a finding.
//
// The sink is first called when every source has made its first call, and gets all objects. So nothing is served from
// half of the sources.
//
// This package does not validate, filter or translate. It starts no goroutine: the sink is called from the goroutines
// of the sources, one at a time, while the other sources wait. A key costs one map entry with a pointer, and a list
// only if several sources have it.
package aggregate
