// Package readme tries the section "A mesh of your own" of README.md: it pastes every block of it into a shell, with
// the real Envoy, in a network of its own.
package readme
