package xds

import (
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// healthType is that of reports of health, which are not answered.
const healthType = "type.googleapis.com/istio.v1.HealthInformation"

// debugType begins the types by which istioctl asks for debug pages.
const debugType = "istio.io/debug"

// unserved returns an error for a type that a tool would wait for in vain. A proxy may ask for any other type that
// nobody serves: it gets no answer, and all else.
func unserved(typeURL string) error {
	if !strings.HasPrefix(typeURL, debugType) {
		return nil
	}
	return status.Errorf(codes.Unimplemented, "%s is not served over xDS yet: on the control plane's host, "+
		"pilot-discovery proxy-status and pilot-discovery request GET /debug/list answer", typeURL)
}

// star subscribes to everything of a type.
const star = "*"
