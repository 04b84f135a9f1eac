// Package substitution checks texts in which Envoy replaces commands such as %REQ(x-name)%, for example values of
// headers. It is pure, and has no state.
package substitution
