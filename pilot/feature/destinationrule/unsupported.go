package destinationrule

import (
	"strconv"

	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// Unsupported returns a finding for each field of a DestinationRule that this version does not support.
func Unsupported(spec *networkingv1.DestinationRule) []diag.Diagnostic {
	list := feature.Unsupported("spec", spec, Lacks)
	for i, s := range spec.Subsets {
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

// Lacks returns what is not done of a field of a traffic policy, and what to do about it, as feature.Unsupported takes
// it. A Sidecar's connection pools hold such fields too.
func Lacks(field string) (message, fix string) {
	switch field {
	case "TrafficPolicy.tunnel":
		message = "connections are not tunnelled"
	case "TrafficPolicy.proxyProtocol":
		message = "connections do not begin with a PROXY header"
	case "TrafficPolicy.retryBudget":
		message, fix = "retries have no budget", "use connectionPool.http.maxRetries"
	case "LoadBalancerSettings.localityLbSetting", "LoadBalancerSettings.zoneAwareLbSetting":
		message = "load is not balanced by locality: all endpoints are equal"
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
