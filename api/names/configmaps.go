package names

import "cmp"

// Default names of the ConfigMaps in each namespace with the roots of a mesh, and with the certificates that its CA has
// revoked.
const (
	RootsMap = "istio-ca-root-cert"
	CRLMap   = "istio-ca-crl"
)

// TrustBundleSigner is the signer of the ClusterTrustBundle with the roots.
const TrustBundleSigner = "istio.io/istiod-ca"

// TrustBundle returns the name of the ClusterTrustBundle with the roots. It follows the name of the ConfigMap that a
// control plane without ClusterTrustBundles publishes. An empty name is the default.
func TrustBundle(roots string) string {
	if cmp.Or(roots, RootsMap) == RootsMap {
		roots = "root-cert"
	}
	return "istio.io:istiod-ca:" + roots
}
