// Package authenticate authenticates callers: by a client certificate, or by a token of Kubernetes or of another OpenID
// provider. Headers that other clients can set, addresses and claims without proof are never accepted as an identity.
//
//   - authenticate.go: runs the authenticators in order; the first that accepts a credential decides.
//   - certificate.go: client certificates of the mesh.
//   - token.go: checks that all tokens share: bounds, accepted algorithms, claims.
//   - kubernetes.go: tokens of service accounts.
//   - cache.go: cached results of token checks.
//   - apiserver.go: issuer, keys and TokenReviews of an API server.
//   - keys.go: an issuer's keys, fetched on demand. latest.go: the cached answer of an issuer.
//   - oidc.go: tokens of other providers, configured by JWT_RULE.
//   - xfcc.go: certificates that a trusted gateway has verified.
//
// If the issuer, API server or pod cache that must decide is unavailable, the error is ErrUnavailable and the caller is
// not authenticated.
//
// # Guarantees
//
//   - Within a cluster, a Kubernetes token leads to a certificate and to a stream, also while the API server is away.
//     Tokens of other clusters, other audiences, deleted pods and the past lead nowhere, and a token is good for its
//     own pod alone. Replicas that start together have one CA: [deploy/e2e/kube.TestTokens].
//   - The same holds for tokens of a remote cluster for as long as a Secret names the cluster:
//     [deploy/e2e/kube.TestRemoteCluster].
//   - Tokens of the provider in JWT_RULE lead to a certificate and to a stream, and its keys are fetched through the
//     guarded dialer: [TestOIDC], [pilot/bootstrap.TestOpenIDProvider].
//   - A malformed or forged token is refused without a request to an issuer or API server: [TestBadTokens],
//     [FuzzToken], [TestGarbage], [TestForgedTokensCostFewReviews], [TestTokenHasOneText].
//   - A token that the API server no longer accepts is refused the next time: [TestRevoked],
//     [TestPodGoesAfterAReview].
//   - A caller that cannot be checked now is told to try again, and gets nothing: [TestReview],
//     [citadel/server.TestCreateCertificate].
//   - A cluster whose API server does not answer delays no caller of another cluster:
//     [TestHangingClusterHoldsUpNoOther]. The requests of one identity delay no other identity:
//     [TestReviewsOfOneAccount], [TestRechecksOfOneAccount]. An issuer that does not answer is asked once for all
//     waiting callers: [TestIssuerIsAskedForOnce].
//   - A certificate that expires during its connection proves nothing more: [TestCertificates]. A forwarded
//     certificate is accepted only from a named address: [TestForwarded], [pilot/bootstrap.TestForwardedAndRevoked].
package authenticate
