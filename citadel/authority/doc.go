// Package authority runs a CA: it loads what the CA signs with, follows changes and rotations, and keeps the
// certificate that the server itself shows.
//
//   - authority.go: the loop. Whatever goes wrong after the start, the last good CA goes on and a finding says why.
//   - serving.go: the server's own certificate and its TLS configuration.
//
// The goroutine of Run owns what the Authority holds, and changes it. Any goroutine may read it.
package authority
