package xds

import (
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// Types that proxies subscribe to beside those of package envoy.
const (
	secretType    = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
	extensionType = "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig"
	nameTableType = "type.googleapis.com/istio.networking.nds.v1.NameTable"
	proxyConfType = "type.googleapis.com/istio.mesh.v1alpha1.ProxyConfig"
	healthType    = "type.googleapis.com/istio.v1.HealthInformation" // only ever comes in
)

// star subscribes to everything of a type.
const star = "*"

// rank orders types on the wire: what is referred to comes before what refers to it.
func rank(typeURL string) int {
	switch typeURL {
	case envoy.ClusterType:
		return 0
	case envoy.EndpointType:
		return 1
	case envoy.ListenerType:
		return 2
	case envoy.RouteType:
		return 3
	case envoy.VirtualHostType:
		return 4
	case secretType:
		return 5
	}
	return 6
}

// removalRank orders types in the pass of removals: who refers to others goes first, clusters last.
func removalRank(typeURL string) int {
	switch typeURL {
	case envoy.ListenerType:
		return 0
	case envoy.ClusterType:
		return 2
	}
	return 1
}

// isComplete tells the types whose state-of-the-world responses have to hold every subscribed resource: absence means removal. Their first response is due
// even when it is empty, for Envoy waits for it.
func isComplete(typeURL string) bool {
	return typeURL == envoy.ClusterType || typeURL == envoy.ListenerType
}

// isNamed tells the types that are always asked for by name: a first request without names asks for nothing.
func isNamed(typeURL string) bool {
	switch typeURL {
	case envoy.EndpointType, envoy.RouteType, secretType, extensionType:
		return true
	}
	return false
}

// ShortType is the name of a type in metrics and logs: cds, eds, lds, rds …; types that are not known share one name.
func ShortType(typeURL string) string {
	switch typeURL {
	case envoy.ClusterType:
		return "cds"
	case envoy.EndpointType:
		return "eds"
	case envoy.ListenerType:
		return "lds"
	case envoy.RouteType:
		return "rds"
	case envoy.VirtualHostType:
		return "vhds"
	case secretType:
		return "sds"
	case extensionType:
		return "ecds"
	case nameTableType:
		return "nds"
	case proxyConfType:
		return "pcds"
	}
	return "unknown"
}
