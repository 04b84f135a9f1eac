// Package secureport makes what the secure port of a server needs: a CA or signers of Kubernetes, the certificate of
// the server itself, the authentication of callers, and the service that issues certificates to them.
//
//   - secureport.go: the parts, and in which order callers are authenticated.
//   - options.go: what an operator says, and which options do not fit together.
//
// The package decides nothing itself: trustdomain, authenticate, authority, server and ra do. It runs no goroutine; the
// caller runs the Authority.
package secureport
