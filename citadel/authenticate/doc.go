// Package authenticate finds out who a caller is: from a client certificate, or from a token of Kubernetes or of
// another OpenID provider. Nothing else counts: no header that others can set, no address, nothing that the caller says
// of itself.
//
//   - authenticate.go: the authenticators one after the other; the first that accepts a credential decides.
//   - certificate.go: client certificates of the mesh.
//   - token.go: what all tokens have in common: bounds, accepted algorithms, claims.
//   - kubernetes.go: tokens of service accounts.
//   - cache.go: what was found out about tokens, for a while.
//   - apiserver.go: what an API server knows of its tokens.
//   - keys.go: an issuer's keys, fetched when they are needed. latest.go: what is asked of an issuer, and kept.
//   - oidc.go: tokens of other providers, by JWT_RULE.
//   - xfcc.go: certificates that a trusted gateway has verified.
//
// If whoever would know cannot be asked, the error is ErrUnavailable, and the caller is not authenticated.
package authenticate
