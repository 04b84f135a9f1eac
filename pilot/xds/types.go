package xds

import (
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// Types that proxies subscribe to beside those of package envoy.
const (
	secretType    = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
	extensionType = "type.googleapis.com/envoy.config.shared.v3.TypedExtensionConfig"
	nameTableType = "type.googleapis.com/istio.networking.nds.v1.NameTable"
	proxyConfType = "type.googleapis.com/istio.mesh.v1alpha1.ProxyConfig"
	healthType    = "type.googleapis.com/istio.v1.HealthInformation" // only ever comes in
)

// debugType begins the types by which istioctl asks for debug pages.
const debugType = "istio.io/debug"

// unserved refuses a request for a type that a tool would wait for in vain. Of any other type that nobody serves, a
// proxy may ask: it gets no answer, and all else.
func unserved(typeURL string) error {
	if !strings.HasPrefix(typeURL, debugType) {
		return nil
	}
	return status.Errorf(codes.Unimplemented, "%s is not served over xDS yet: on the control plane's host, pilot-discovery proxy-status and pilot-discovery request GET /debug/list answer", typeURL)
}

// star subscribes to everything of a type.
const star = "*"

// kind is what is known of a type.
type kind struct {
	short string // in metrics and logs; types that are not known share one

	// rank orders types on the wire: referents come before what refers to them. removal orders the pass of removals:
	// what refers goes first, clusters last.
	rank, removal int

	// complete: state-of-the-world responses have to hold every subscribed resource, for absence means removal. The
	// first response is due even when it is empty, for Envoy waits for it.
	complete bool
	named    bool // always asked for by name: a first request without names asks for nothing
}

func kindOf(typeURL string) kind {
	switch typeURL {
	case envoy.ClusterType:
		return kind{short: "cds", rank: 0, removal: 2, complete: true}
	case envoy.EndpointType:
		return kind{short: "eds", rank: 1, removal: 1, named: true}
	case envoy.ListenerType:
		return kind{short: "lds", rank: 2, removal: 0, complete: true}
	case envoy.RouteType:
		return kind{short: "rds", rank: 3, removal: 1, named: true}
	case envoy.VirtualHostType:
		return kind{short: "vhds", rank: 4, removal: 1}
	case secretType:
		return kind{short: "sds", rank: 5, removal: 1, named: true}
	case extensionType:
		return kind{short: "ecds", rank: 6, removal: 1, named: true}
	case nameTableType:
		return kind{short: "nds", rank: 6, removal: 1}
	case proxyConfType:
		return kind{short: "pcds", rank: 6, removal: 1}
	}
	return kind{short: "unknown", rank: 6, removal: 1}
}

// ShortType is the name of a type in metrics and logs: cds, eds, lds, rds …; types that are not known share one name.
func ShortType(typeURL string) string { return kindOf(typeURL).short }

// typeOf returns a type's URL, without an allocation if it is known.
func typeOf(b []byte) string {
	for _, known := range [...]string{envoy.ClusterType, envoy.EndpointType, envoy.ListenerType, envoy.RouteType, envoy.VirtualHostType, secretType} {
		if known == string(b) {
			return known
		}
	}
	return string(b)
}
