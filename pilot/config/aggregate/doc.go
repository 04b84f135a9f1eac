// Package aggregate makes one source of configuration of several, in order of precedence.
//
// Of objects with one key, that of the first source that has it counts. When it goes, that of the next one comes forth. What changes behind an object that
// counts changes nothing, nor does a change of sources between two objects that are equal, for which the old pointer stays. That several sources have one
// key is a finding, for each key.
//
// The sink's first call brings everything that the sources had, and comes when each has made its first call. So nothing is served of half a world.
//
// It does not validate, filter or translate. It starts no goroutine: the sink is called from those of the sources, one at a time, while the others wait. For
// each key it holds one map entry with a pointer, and a list only for a key that several sources have.
package aggregate
