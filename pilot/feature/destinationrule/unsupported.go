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
	switch field {
	case "TrafficPolicy.tunnel":
		message = "connections are not tunnelled"
	case "TrafficPolicy.proxyProtocol":
		message = "connections do not begin with a PROXY header"
	case "TrafficPolicy.retryBudget":
		message, fix = "retries have no budget", "use connectionPool.http.maxRetries"
	case "TCPSettings.idleTimeout":
		message = "idle TCP connections are not closed by it"
	case "HTTPSettings.useClientProtocol":
		message = "the protocol of requests does not follow the client's"
	case "HTTPSettings.http2KeepAlive":
		message, fix = "HTTP/2 connections are not probed", "use connectionPool.tcp.tcpKeepalive"
	case "OutlierDetection.consecutiveErrors":
		message, fix = "these errors are not counted", "use consecutive5xxErrors"
	case "OutlierDetection.outlierDetectionHttpErrorCodes":
		message, fix = "the codes that count as errors are the default ones", "use consecutive5xxErrors or consecutiveGatewayErrors"
	}
	return message, fix
}

// unsupportedMesh returns a finding for each default of policies in a mesh configuration that is not supported.
func unsupportedMesh(_ *mesh.Config, changed *meshv1alpha1.MeshConfig) []diag.Diagnostic {
	return feature.Unsupported("", changed, func(field string) (message, fix string) {
		switch field {
		case "MeshConfig.defaultTrafficPolicy":
			message, fix = "a service without a DestinationRule has no policy", "write it in DestinationRules"
		case "MeshConfig.inboundClusterStatName", "MeshConfig.outboundClusterStatName":
			message = "statistics have the names of clusters"
		case "MeshConfig.verifyCertificateAtClient":
			message, fix = "a server's certificate is verified if its DestinationRule says by what", "write caCertificates in DestinationRules"
		}
		return message, fix
	})
}
