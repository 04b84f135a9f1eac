package virtualservice

import (
	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

func unsupported(o *kinds.Object) []diag.Diagnostic {
	return feature.Unsupported("spec", o.Spec.(*networkingv1.VirtualService), lacks)
}

// lacks returns what is not done of a field, and what to do about it, as feature.Unsupported takes it.
func lacks(field string) (message, fix string) {
	switch field {
	case "VirtualService.tls", "VirtualService.tcp":
		message, fix = "connections that are not HTTP go to the service whose address they were made to", "route HTTP alone"
	case "Delay.exponentialDelay":
		message, fix = "requests are delayed by fixedDelay alone", "use fixedDelay"
	case "Abort.http2Error":
		message, fix = "requests are aborted by httpStatus and grpcStatus alone", "use httpStatus"
	}
	return message, fix
}
