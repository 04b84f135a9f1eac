package names

import "cmp"

// Default names of the ConfigMaps in each namespace with the roots of a mesh, and with the certificates that its CA has
// revoked.
const (
	RootsMap = "istio-ca-root-cert"
	CRLMap   = "istio-ca-crl"
)

// RootsLease is the name of the Lease for replacing the root of a CA, and for publishing roots in ConfigMaps with the
// default names. istiod uses the same.
const RootsLease = "istio-namespace-controller-election"

// PublishingLease returns the name of the Lease for publishing roots in ConfigMaps with these names. Control planes of
// one namespace that publish other ConfigMaps have a Lease each, so that each of them publishes its own. An empty name
// is the default.
func PublishingLease(roots, crl string) string {
	roots, crl = cmp.Or(roots, RootsMap), cmp.Or(crl, CRLMap)
	if roots == RootsMap && crl == CRLMap {
		return RootsLease
	}
	return RootsLease + "-" + roots + "-" + crl
}

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
