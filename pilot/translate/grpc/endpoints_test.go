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
// gap between priorities. It is sent none.
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
			l.LbEndpoints = append(l.LbEndpoints, &endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: at}}})
		}
		return l
	}
	full := envoy.NewResource("c", &endpointv3.ClusterLoadAssignment{ClusterName: "c", Endpoints: []*endpointv3.LocalityLbEndpoints{
		group(3, "z", "10.0.0.1", "10.0.0.5"), group(0, "", "10.0.0.1", "10.0.0.1"), group(1, "z", "10.0.0.1", "/socket"),
		group(2, "z", "10.0.0.2"), group(2, "z", "10.0.0.3", "10.0.0.4"),
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
	want := "0 \"\" weight 2: 10.0.0.1\n1 \"z\" weight 3: 10.0.0.2 10.0.0.3 10.0.0.4\n2 \"z\" weight 2: 10.0.0.5\n"
	if text != want || got.ClusterName != "c" || got.Endpoints[0].Locality == nil {
		t.Errorf("got\n%swant\n%s", text, want)
	}
}
