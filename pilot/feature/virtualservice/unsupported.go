package virtualservice

import (
	"slices"

	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

func unsupported(o *kinds.Object) []diag.Diagnostic {
	v := o.Spec.(*networkingv1.VirtualService)
	sidecars := len(v.Gateways) == 0 || slices.Contains(v.Gateways, "mesh")
	return feature.Unsupported("spec", v, func(field string) (message, fix string) {
		if field == "VirtualService.tls" || field == "VirtualService.tcp" {
			if !sidecars {
				return "", ""
			}
			return "sidecars leave connections that are not HTTP to the service whose address they were made to", "route HTTP alone, or bind it to Gateways alone"
		}
		return lacks(field)
	})
}

// lacks returns what is not done of a field, and what to do about it, as feature.Unsupported takes it.
func lacks(field string) (message, fix string) {
	switch field {
	case "L4MatchAttributes.destinationSubnets", "L4MatchAttributes.sourceSubnet", "L4MatchAttributes.sourceLabels",
		"TLSMatchAttributes.destinationSubnets", "TLSMatchAttributes.sourceLabels":
		message, fix = "gateways match connections by port and server name alone", "remove it"
	case "Delay.exponentialDelay":
		message, fix = "requests are delayed by fixedDelay alone", "use fixedDelay"
	case "Abort.http2Error":
		message, fix = "requests are aborted by httpStatus and grpcStatus alone", "use httpStatus"
	}
	return message, fix
}
