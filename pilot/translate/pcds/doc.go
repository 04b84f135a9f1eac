// Package pcds makes the ProxyConfig that agents request: roots that a proxy trusts in addition to the roots of
// its certificate. It is one resource without a name, the same for every proxy. Without roots there is none. Its tests
// are in pilot/translate (roots_test.go). The package is pure.
package pcds
