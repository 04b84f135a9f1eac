// Package ca issues certificates to workloads and servers.
//
// A CA signs with one pki.Bundle at a time. Whoever loads and rotates bundles gives it a new one by Use; it goes on
// with the last one until then. Whom a certificate is for is decided by whoever authenticated the caller: of a
// certificate request only the key counts. The package reads no file and no network, and runs no goroutine.
package ca
