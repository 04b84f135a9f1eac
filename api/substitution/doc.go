// Package substitution checks texts in which Envoy replaces commands such as %REQ(x-name)%, as in values of headers. It
// is pure, and it has no state.
package substitution
