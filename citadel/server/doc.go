// Package server serves istio.v1.auth.IstioCertificateService: CreateCertificate, by which proxies get certificates.
//
// A request goes through the steps of one function: who asks, whom for, how often, then the issuer. Callers are
// authenticated before anything of the request is read. Nothing but the caller's identity says whom a certificate is
// for. If whoever authenticates or issues is unavailable, the answer is Unavailable and the caller tries again: nothing
// is issued on a guess. The server runs no goroutine of its own.
package server
