// Package why asks real Envoys and the command why the same: which answer a request gets, from which pod, with which
// path. The requests are all combinations of paths, headers and methods that the routes of the test tell apart, through
// a sidecar and through a gateway.
package why
