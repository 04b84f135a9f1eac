// Package jwks reads sets of public keys by which tokens are verified: JSON Web Key Sets, RFC 7517. What it returns has
// public keys alone, whatever a set had in it. The package is pure.
package jwks
