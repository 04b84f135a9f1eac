package xds

import (
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/xds/xdstest"
)

// Only an Envoy that can is sent virtual hosts by themselves, and none where they are turned off; the debug view has
// them in their route configurations.
func TestVirtualHostsAloneForEnvoysThatCan(t *testing.T) {
	for _, c := range []struct {
		minor   uint32
		off     bool
		divided bool
	}{{36, false, false}, {37, false, true}, {40, true, false}} {
		r := newRig(t, func(o *Options) { o.NoVirtualHosts = c.off })
		r.publish(true, "cds a=1", "rds 80=h", "vhds 80/x=1", "vhds 80/y=1")
		n := xdstest.Node("web.a")
		n.UserAgentVersionType = &corev3.Node_UserAgentBuildVersion{UserAgentBuildVersion: &corev3.BuildVersion{
			Version: &typev3.SemanticVersion{MajorNumber: 1, MinorNumber: c.minor},
		}}
		s := r.as(n)
		s.expect("cds a=1")
		s.subscribe("rds", "80")
		if !c.divided {
			s.expect("rds 80=h+x1+y1")
			s.subscribe("vhds")
			r.publish(true, "vhds 80/y=2")
			s.expect("rds 80=h+x1+y2")
			continue
		}
		s.expect("rds 80=head")
		s.subscribe("vhds")
		m := s.expect("vhds 80/x=1 80/y=1")
		// What was rejected together comes again one by one, each when the one before was answered.
		reject := func(m *discoveryv3.DeltaDiscoveryResponse) {
			s.send(
				&discoveryv3.DeltaDiscoveryRequest{TypeUrl: m.TypeUrl, ResponseNonce: m.Nonce, ErrorDetail: &rpcstatus.Status{Code: 13, Message: "no"}},
			)
		}
		reject(m)
		reject(s.expect("vhds 80/x=1"))
		m = s.expect("vhds 80/y=1")
		s.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: m.TypeUrl, ResponseNonce: m.Nonce})
		r.publish(true, "vhds 80/y=2")
		s.expect("vhds 80/y=2")
		routes, ok := r.server.Dump("web.a", envoy.RouteType)
		if !ok || len(routes) != 1 || !strings.Contains(string(routes[0].Bytes()), "80/y=2") ||
			!strings.Contains(string(routes[0].Bytes()), "80=head") {
			t.Errorf("dump: %v %v", routes, ok)
		}
		if hosts, ok := r.server.Dump("web.a", envoy.VirtualHostType); !ok || len(hosts) != 2 {
			t.Errorf("dump: %v %v", hosts, ok)
		}
	}
}
