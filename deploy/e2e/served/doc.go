// Package served starts a control plane of a directory of YAML for one test, with simulated proxies, for tests that
// look at what it serves over HTTP: debug pages, metrics and the live page.
//
// A Server belongs to one test, and ends with it.
package served
