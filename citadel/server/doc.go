// Package server serves istio.v1.auth.IstioCertificateService: CreateCertificate, by which proxies get certificates.
//
// CreateCertificate authenticates the caller before it reads anything of the request. Then it decides which identity
// the certificate is for: the caller's own, or one that Options.Impersonate allows. By a certificate alone, a caller
// gets another one only if Options.Renew allows it. It limits how often one identity may ask, and calls the issuer. If
// whoever authenticates or issues is unavailable, the answer is Unavailable and the caller tries again: nothing is
// issued on a guess. The server runs no goroutine of its own.
package server
