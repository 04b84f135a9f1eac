package translate_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"pgregory.net/rapid"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// TestWeightsFitEnvoy: whatever the weights, the sums for the endpoints of a locality and for the localities of a
// priority stay in Envoy's range, and endpoints keep their shares.
func TestWeightsFitEnvoy(t *testing.T) {
	const most = math.MaxUint32
	for _, c := range []struct {
		name, resolution string
		endpoints        []string // address, weight, locality, network
		want             string   // weights by address, each locality's behind them
	}{
		{"as they are", "STATIC", []string{"10.2.0.1 4294967294 r/z1", "10.2.0.2 1 r/z1"}, "10.2.0.1=4294967294 10.2.0.2=1 z1=4294967295"},
		{"one locality", "STATIC", []string{"10.2.0.1 4294967295 r/z1", "10.2.0.2 1 r/z1"}, "10.2.0.1=4294967292 10.2.0.2=1 z1=4294967293"},
		{"two localities", "STATIC", []string{"10.2.0.1 4294967295 r/z1", "10.2.0.2 4294967295 r/z2"},
			"10.2.0.1=2147483646 10.2.0.2=2147483646 z1=2147483646 z2=2147483646"},
		{"names", "DNS", []string{"one.test 4000000000 r/z1", "two.test 4000000000 r/z1", "three.test 2000000000 r/z1"},
			"one.test=1717986916 three.test=858993458 two.test=1717986916 z1=4294967290"},
		{"one gateway", "STATIC", []string{"10.2.0.1 4294967295 r/z1", "10.3.0.1 4294967295 r/z1 far"},
			"10.2.0.1=2147483646 192.0.2.1=2147483646 z1=4294967292"},
		{"three gateways", "STATIC", []string{"10.2.0.1 3 r/z1", "10.3.0.1 4294967295 r/z1 wide"},
			"10.2.0.1=2 192.0.2.2=1431655762 192.0.2.3=1431655762 192.0.2.4=1431655762 z1=4294967288"},
		{"three gateways, light", "STATIC", []string{"10.2.0.1 3 r/z1", "10.3.0.1 1 r/z1 wide"},
			"10.2.0.1=9 192.0.2.2=1 192.0.2.3=1 192.0.2.4=1 z1=12"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := assignment(t, c.resolution, c.endpoints)
			if got := weights(t, a); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
	rapid.Check(t, func(t *rapid.T) {
		weight := rapid.OneOf(rapid.Uint32Range(1, 9), rapid.Uint32Range(most/2, most), rapid.Just(uint32(most)))
		var endpoints []string
		heaviest, lightest := -1, -1
		var all []uint32
		for i := range rapid.IntRange(1, 12).Draw(t, "endpoints") {
			w := weight.Draw(t, "weight")
			all = append(all, w)
			if heaviest < 0 || w > all[heaviest] {
				heaviest = i
			}
			if lightest < 0 || w < all[lightest] {
				lightest = i
			}
			endpoints = append(endpoints, fmt.Sprintf("10.2.0.%d %d r/z%d %s", i+1, w, rapid.IntRange(1, 3).Draw(t, "zone"),
				rapid.SampledFrom([]string{"", "", "far", "wide"}).Draw(t, "network")))
		}
		a := assignment(t, rapid.SampledFrom([]string{"STATIC", "DNS"}).Draw(t, "resolution"), endpoints)
		weights(t, a)
		sent := map[string]uint32{}
		for _, l := range a.Endpoints {
			for _, e := range l.LbEndpoints {
				sent[e.GetEndpoint().GetAddress().GetSocketAddress().GetAddress()] = e.GetLoadBalancingWeight().GetValue()
			}
		}
		most, some := sent[fmt.Sprintf("10.2.0.%d", heaviest+1)], sent[fmt.Sprintf("10.2.0.%d", lightest+1)]
		if most != 0 && some != 0 && most < some {
			t.Fatalf("the heaviest has %d, the lightest %d", most, some)
		}
	})
}

// assignment returns the assignment of a service with some endpoints, beside a network with one gateway and one with
// three.
func assignment(t tb, resolution string, endpoints []string) *endpointv3.ClusterLoadAssignment {
	i := newNetworkWorld(t, `
networks:
  far: {gateways: [{address: 192.0.2.1, port: 15443}]}
  wide: {gateways: [{address: 192.0.2.2, port: 15443}, {address: 192.0.2.3, port: 15443}, {address: 192.0.2.4, port: 15443}]}
`)
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\n"+
		"metadata: {name: s, namespace: a}\n"+
		"spec:\n  hosts: [web.example]\n  location: MESH_INTERNAL\n  resolution: %s\n  ports: [{number: 80, name: http, protocol: "+
		"HTTP}]\n  endpoints:\n", resolution)
	for _, e := range endpoints {
		f := append(strings.Fields(e), "")
		fmt.Fprintf(&b, "  - {address: %s, weight: %s, locality: %s, network: %q, labels: {security.istio.io/tlsMode: istio}}\n", f[0],
			f[1], f[2], f[3])
	}
	s := i.apply(objects(t, "s.yaml", []byte(b.String()))...)
	tr, p := newTranslator(0), networkProxies()["c1-none"]
	const name = "outbound|80||web.example"
	c := tr.ResolveCohort(s, p)
	if m := decode(t, tr.Wildcard(s, c, envoy.ClusterType).Get(name)).(*clusterv3.Cluster); m.LoadAssignment != nil {
		valid(t, "clusters", tr.Wildcard(s, c, envoy.ClusterType).Get(name))
		return m.LoadAssignment
	}
	return valid(t, "assignments", tr.Resource(s, c, envoy.EndpointType, name)).(*endpointv3.ClusterLoadAssignment)
}

// weights lists the weights of an assignment, and checks that Envoy takes them.
func weights(t tb, a *endpointv3.ClusterLoadAssignment) string {
	var endpoints, localities []string
	sums := map[uint32]uint64{}
	for _, l := range a.Endpoints {
		sum := uint64(0)
		for _, e := range l.LbEndpoints {
			w := e.GetLoadBalancingWeight().GetValue()
			if sum += uint64(w); w == 0 {
				t.Fatalf("an endpoint has no weight: %v", l)
			}
			endpoints = append(endpoints, fmt.Sprintf("%s=%d", e.GetEndpoint().GetAddress().GetSocketAddress().GetAddress(), w))
		}
		w := l.GetLoadBalancingWeight().GetValue()
		if sum > math.MaxUint32 || uint64(w) != sum {
			t.Fatalf("locality %v weighs %d, its endpoints %d", l.Locality, w, sum)
		}
		sums[l.Priority] += sum
		localities = append(localities, fmt.Sprintf("%s=%d", l.GetLocality().GetZone(), w))
	}
	for sum := range maps.Values(sums) {
		if sum > math.MaxUint32 {
			t.Fatalf("the localities weigh %d", sum)
		}
	}
	slices.Sort(endpoints)
	return strings.Join(append(endpoints, localities...), " ")
}
