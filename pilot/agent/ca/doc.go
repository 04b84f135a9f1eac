// Package ca asks the control plane to sign certificates, by istio.v1.auth's CreateCertificate.
//
// A Client makes one call for each request and retries nothing: the package secrets decides when to ask again. It
// holds no state but its metrics, and runs no goroutine.
package ca
