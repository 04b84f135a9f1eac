package grpc

import (
	"fmt"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// TestEndpoints: gRPC rejects an assignment with an address twice, a locality twice in one priority, no locality, or a
// gap between priorities. It is sent none, and no endpoint that is not well. A locality weighs what its endpoints do,
// unless it has a share.
func TestEndpoints(t *testing.T) {
	group := func(priority uint32, zone string, addresses ...string) *endpointv3.LocalityLbEndpoints {
		l := &endpointv3.LocalityLbEndpoints{Priority: priority, LoadBalancingWeight: envoy.UInt32(uint32(len(addresses)))}
		if zone != "" {
			l.Locality = &corev3.Locality{Zone: zone}
		}
		for _, a := range addresses {
			at := envoy.Address(a, 80)
			if strings.HasPrefix(a, "/") {
				at = &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: a}}}
			}
			l.LbEndpoints = append(l.LbEndpoints,
				&endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: at}}})
		}
		return l
	}
	ill, share := group(4, "ill", "10.0.1.1", "10.0.1.2", "10.0.1.3"), group(4, "share", "10.0.1.4", "10.0.1.5")
	ill.LbEndpoints[0].HealthStatus, ill.LbEndpoints[1].HealthStatus, ill.LbEndpoints[2].HealthStatus = corev3.HealthStatus_UNHEALTHY,
		corev3.HealthStatus_DRAINING, corev3.HealthStatus_HEALTHY
	share.LbEndpoints[0].HealthStatus, share.LoadBalancingWeight = corev3.HealthStatus_UNHEALTHY, envoy.UInt32(70)
	gone := group(5, "gone", "10.0.1.6")
	gone.LbEndpoints[0].HealthStatus = corev3.HealthStatus_UNHEALTHY
	full := envoy.NewResource("c", &endpointv3.ClusterLoadAssignment{ClusterName: "c", Endpoints: []*endpointv3.LocalityLbEndpoints{
		group(3, "z", "10.0.0.1", "10.0.0.5"), group(0, "", "10.0.0.1", "10.0.0.1"), group(1, "z", "10.0.0.1", "/socket"),
		group(2, "z", "10.0.0.2"), group(2, "z", "10.0.0.3", "10.0.0.4"), ill, share, gone,
	}})
	var got endpointv3.ClusterLoadAssignment
	read(buildEndpoints(endpointsKey{full}).Value(), &got)
	text := ""
	for _, l := range got.Endpoints {
		text += fmt.Sprintf("%d %q weight %d:", l.Priority, l.Locality.Zone, l.LoadBalancingWeight.GetValue())
		for _, e := range l.LbEndpoints {
			text += " " + e.GetEndpoint().GetAddress().GetSocketAddress().GetAddress()
		}
		text += "\n"
	}
	want := "0 \"\" weight 1: 10.0.0.1\n1 \"z\" weight 3: 10.0.0.2 10.0.0.3 10.0.0.4\n2 \"z\" weight 1: 10.0.0.5\n" +
		"3 \"ill\" weight 1: 10.0.1.3\n3 \"share\" weight 70: 10.0.1.5\n"
	if text != want || got.ClusterName != "c" || got.Endpoints[0].Locality == nil {
		t.Errorf("got\n%swant\n%s", text, want)
	}
}
