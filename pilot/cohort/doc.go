// Package cohort says which proxies must receive identical configuration: Of reduces a proxy to comparable keys, and proxies with equal keys
// share what they are sent. Key is the same in few words, which cost nothing to compare; Keys makes
// it, and holds no part of it that nobody has, but for those of the proxies that came last.
//
// A key holds what reaches the bytes and nothing else: never label values, but the objects whose selectors matched; addresses only where a chain
// names them. Of is pure; Keys alone is state, safe for concurrent use. The package starts no goroutine.
package cohort
