package destinationrule

import (
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
	return feature.Unsupported("spec", o.Spec.(*networkingv1.DestinationRule), lacks)
}

// lacks returns the message and the remedy for an unsupported field of a traffic policy, see feature.Unsupported.
func lacks(field string) (message, fix string) {
	if field == "OutlierDetection.consecutiveErrors" {
		message, fix = "these errors are not counted", "use consecutive5xxErrors"
	}
	return message, fix
}

// unsupportedMesh returns a finding for each unsupported default of policies in a mesh configuration. A setting that
// disables a check has no effect: only a DestinationRule can disable one.
func unsupportedMesh(c *mesh.Config, _ *meshv1alpha1.MeshConfig) []diag.Diagnostic {
	var list []diag.Diagnostic
	if v := c.GetVerifyCertificateAtClient(); v != nil && !v.Value { //nolint:staticcheck // users still set it
		list = append(list, feature.NotImplemented("verifyCertificateAtClient",
			"server certificates are always verified, by the system's roots if a DestinationRule names none",
			"use tls.insecureSkipVerify in DestinationRules"))
	}
	return append(list, feature.Unsupported("defaultTrafficPolicy", c.GetDefaultTrafficPolicy(), lacks)...)
}
