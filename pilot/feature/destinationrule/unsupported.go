package destinationrule

import (
	"strconv"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// unsupported returns a finding for each unsupported field of a DestinationRule, and of the connection pools of a
// Sidecar.
func unsupported(o *kinds.Object) []diag.Diagnostic {
	if s, ok := o.Spec.(*networkingv1.Sidecar); ok {
		return feature.Unsupported("spec", s, func(field string) (message, fix string) {
			if field == "HTTPSettings.h2UpgradePolicy" {
				return "requests to the workload keep their protocol", "write it in a DestinationRule"
			}
			return lacks(field)
		})
	}
	r := o.Spec.(*networkingv1.DestinationRule)
	list := feature.Unsupported("spec", r, lacks)
	for i, s := range r.Subsets {
		if s.GetTrafficPolicy().GetLoadBalancer().GetConsistentHash().GetHashKey() != nil {
			field := "spec.subsets[" + strconv.Itoa(i) + "].trafficPolicy.loadBalancer.consistentHash"
			list = append(list, subsetHash(field))
			break
		}
		for j, p := range s.GetTrafficPolicy().GetPortLevelSettings() {
			if p.GetLoadBalancer().GetConsistentHash().GetHashKey() != nil {
				field := "spec.subsets[" + strconv.Itoa(i) + "].trafficPolicy.portLevelSettings[" + strconv.Itoa(j) + "].loadBalancer.consistentHash"
				list = append(list, subsetHash(field))
				break
			}
		}
	}
	return list
}

// subsetHash is the finding about the hash of a subset: a route may lead to several subsets, and has one hash.
func subsetHash(field string) diag.Diagnostic {
	return feature.NotImplemented(field, "requests are hashed as the service's own policy says, not the subset's", "write it in spec.trafficPolicy")
}

// lacks returns what is not done of a field of a traffic policy, and what to do about it, as feature.Unsupported takes
// it.
func lacks(field string) (message, fix string) {
	if field == "OutlierDetection.consecutiveErrors" {
		message, fix = "these errors are not counted", "use consecutive5xxErrors"
	}
	return message, fix
}

// unsupportedMesh returns a finding for each default of policies in a mesh configuration that is not supported. What
// deactivates a check has no effect: a check can be left out where a DestinationRule says so.
func unsupportedMesh(c *mesh.Config, _ *meshv1alpha1.MeshConfig) []diag.Diagnostic {
	var list []diag.Diagnostic
	if v := c.GetVerifyCertificateAtClient(); v != nil && !v.Value {
		list = append(list, feature.NotImplemented("verifyCertificateAtClient", "the certificates of servers are verified, by those of the system where a DestinationRule names none",
			"use tls.insecureSkipVerify in DestinationRules"))
	}
	return append(list, feature.Unsupported("defaultTrafficPolicy", c.GetDefaultTrafficPolicy(), lacks)...)
}
