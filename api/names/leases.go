package names

import "cmp"

// Names of the Leases for which replicas of a control plane stand for election. istiod uses the same. All revisions
// share a Lease whose name does not end with the revision.
const (
	// IngressLease is for writing the statuses of Ingresses and of objects of the Gateway API.
	IngressLease = "istio-leader"
	// AnalysisLease is for writing findings into statuses. An object has one status.
	AnalysisLease = "istio-analyze-leader"
	// ConditionsLease is for writing whether objects are in force into statuses.
	ConditionsLease = "istio-status-leader"
	// RootsLease is for replacing the root of a CA, and for publishing roots in ConfigMaps with the default names.
	RootsLease = "istio-namespace-controller-election"
	// ExportsLease is for creating ServiceExports.
	ExportsLease = "istio-serviceexport-controller-election"
	// UntaintLease is for removing taints from nodes.
	UntaintLease = "istio-node-untaint"

	// CleanupLease is for deleting stale WorkloadEntries. The name of a revision follows it, except for the default.
	CleanupLease = "istio-workloadentry-cleanup"
	// WebhooksLease is for writing webhook configurations. The name of a revision follows it, except for the default.
	WebhooksLease = "istio-webhook-controller-election"
	// gatewaysLease is for deploying Gateways. The name of a revision follows it.
	gatewaysLease = "istio-gateway-deployment-"
)

// GatewaysLease returns the name of the Lease for deploying Gateways of a revision. An empty revision is the default.
func GatewaysLease(revision string) string { return gatewaysLease + cmp.Or(revision, "default") }

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

// Leases returns the names of all Leases of the replicas of a revision, which publish roots in ConfigMaps with these
// names. An empty string is the default of each.
func Leases(revision, roots, crl string) []string {
	suffix := ""
	if revision != "" && revision != "default" {
		suffix = "-" + revision
	}
	return []string{
		IngressLease, AnalysisLease, ConditionsLease, RootsLease, PublishingLease(roots, crl), ExportsLease, UntaintLease,
		CleanupLease + suffix, WebhooksLease + suffix, GatewaysLease(revision),
	}
}
