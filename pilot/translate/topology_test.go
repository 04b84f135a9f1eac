package translate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/google/go-cmp/cmp"

	"github.com/istiod-lite/istiod-lite/api/mesh"
)

// TestTopologyPriority: endpoints of the client's network come first. Within each network, the client's or not, those
// of its region and zone come first. The real istiod sent these priorities.
func TestTopologyPriority(t *testing.T) {
	yaml := `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: close, namespace: c, annotations: {networking.istio.io/traffic-distribution: PreferClose}}
spec:
  hosts: [close.example.net]
  ports: [{number: 80, name: http, protocol: HTTP}]
  resolution: STATIC
  location: MESH_INTERNAL
  endpoints:
`
	names := map[string]string{}
	for _, network := range []string{"net1", "net2", "none"} {
		for _, locality := range []string{"r1/z1", "r1/z2", "r2/z1"} {
			address := fmt.Sprint("192.0.8.", len(names)+1)
			names[address] = network + " " + locality
			yaml += fmt.Sprintf("  - {address: %s, locality: %s, network: %s}\n", address, locality, strings.TrimPrefix(network, "none"))
		}
	}
	w := newWorld(t, mesh.Default())
	s := w.apply(objects(t, "close.yaml", []byte(yaml))...)
	for network, want := range map[string]string{
		"net1": "0: net1 r1/z1, 1: net1 r1/z2, 2: net1 r2/z1, 3: net2 r1/z1, 3: none r1/z1, 4: net2 r1/z2, 4: none r1/z2, 5: net2 " +
			"r2/z1, 5: none r2/z1",
		"net2": "0: net2 r1/z1, 1: net2 r1/z2, 2: net2 r2/z1, 3: net1 r1/z1, 3: none r1/z1, 4: net1 r1/z2, 4: none r1/z2, 5: net1 " +
			"r2/z1, 5: none r2/z1",
	} {
		p := proxy(t, []byte(`{"id":"sidecar~10.9.1.1~client.c~c.svc.cluster.local",`+
			`"locality":{"region":"r1","zone":"z1"},"metadata":{"NAMESPACE":"c","NETWORK":"`+network+`"}}`))
		a := decode(t, sent(t, newTranslator(0), s, p)["eds"]["outbound|80||close.example.net"]).(*endpointv3.ClusterLoadAssignment)
		var got []string
		for _, g := range a.Endpoints {
			for _, e := range g.LbEndpoints {
				got = append(got, fmt.Sprintf("%d: %s", g.Priority, names[e.GetEndpoint().GetAddress().GetSocketAddress().GetAddress()]))
			}
		}
		slices.Sort(got)
		if d := cmp.Diff(want, strings.Join(got, ", ")); d != "" {
			t.Errorf("client in %s (-want +got):\n%s", network, d)
		}
	}
}
