package eds

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/encoding/protojson"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature/destinationrule"
	"github.com/istiod-lite/istiod-lite/pilot/scope/traffic"
	"github.com/istiod-lite/istiod-lite/registry"
)

// spread is endpoints 1 to 8, in several localities, with their weights and labels.
func spread() []*registry.Endpoint {
	var list []*registry.Endpoint
	for _, text := range []string{"r1/z1/s1 1 v1 gold", "r1/z1/s2 1 v2", "r1/z2/s1 2 v1", "r2/z1/s1 1 v1 gold", "r3/z1/s1 1 v2",
		"r3/z2/s1 3 v1", "// 1 v2", "r1/z1/s1 4 v3"} {
		f := strings.Fields(text)
		e := &registry.Endpoint{Locality: localityAt(f[0]), Labels: map[string]string{"version": f[2]}}
		if _, err := fmt.Sscan(f[1], &e.Weight); err != nil {
			panic(err)
		}
		if len(f) > 3 {
			e.Labels["tier"] = f[3]
		}
		list = append(list, e)
	}
	return list
}

func localityAt(text string) registry.Locality {
	f := append(strings.Split(text, "/"), "", "")
	return registry.Locality{Region: f[0], Zone: f[1], SubZone: f[2]}
}

// TestPriorities: the real istiod sent these priorities of the endpoints 1 to 8 to three proxies.
func TestPriorities(t *testing.T) {
	label := func(name, value string) cohort.Label { return cohort.Label{Name: name, Value: value} }
	clients := []place{
		{location: cohort.Location{Locality: localityAt("r1/z1/s1"), Labels: frozen.ListOf(label("tier", "gold"), label("version", "v1"))}},
		{location: cohort.Location{Locality: localityAt("r1/z2/s1"), Labels: frozen.ListOf(label("version", "v2"))}},
		{location: cohort.Location{Labels: frozen.ListOf(label("version", "v1"))}}, // of no locality
	}
	for _, c := range []struct {
		balancer string
		ejects   bool
		want     [3]string
	}{
		{`{}`, true, [3]string{"01233330", "11022221", "11111101"}},
		{`{}`, false, [3]string{"00000000", "00000000", "00000000"}},
		{`{"localityLbSetting":{"enabled":false}}`, true, [3]string{"00000000", "00000000", "00000000"}},
		{`{"localityLbSetting":{"failover":[{"from":"r1","to":"r3"}]}}`, true, [3]string{"01243340", "11032231", "11111101"}},
		{`{"localityLbSetting":{"failover":[{"from":"r1","to":"r3"}]}}`, false, [3]string{"00000000", "00000000", "00000000"}},
		{`{"localityLbSetting":{"failoverPriority":["version"]}}`, true, [3]string{"01001011", "10110101", "01001011"}},
		{`{"localityLbSetting":{"failoverPriority":["tier","version"]}}`, true, [3]string{"01101111", "20120101", "21021011"}},
		{`{"localityLbSetting":{"failoverPriority":["version=v1","topology.kubernetes.io/region","topology.istio.io/subzone"]}}`, true,
			[3]string{"02012122", "02012122", "01001011"}},
		{`{"localityLbSetting":{"failover":[{"from":"r1","to":"r3"}],"failoverPriority":["version"]}}`, true,
			[3]string{"01243340", "11032231", "11111101"}},
		{`{"zoneAwareLbSetting":{"enabled":true}}`, false, [3]string{"00011110", "00011110", "11111101"}},
		{`{"zoneAwareLbSetting":{"failover":[{"from":"r1","to":"r3"}]}}`, true, [3]string{"00021120", "00021120", "11111101"}},
		{`{"zoneAwareLbSetting":{"enabled":false}}`, true, [3]string{"00000000", "00000000", "00000000"}},
	} {
		for i, client := range clients {
			lb := &networkingv1alpha3.LoadBalancerSettings{}
			must.Succeed(t, protojson.Unmarshal([]byte(c.balancer), lb))
			p := traffic.Policy{LoadBalancer: lb}
			if c.ejects {
				p.OutlierDetection = &networkingv1alpha3.OutlierDetection{}
			}
			n := topologyOf(destinationrule.New().Destination.Choice(mesh.Default(), &registry.Service{}, p), client, "c")
			var groups []priorityGroup
			for _, e := range spread() {
				groups = append(groups, priorityGroup{distance: n.distance(e, false)})
			}
			order := priorities(groups)
			got := ""
			for _, g := range groups {
				got += fmt.Sprint(order[g.distance])
			}
			if got != c.want[i] {
				t.Errorf("%s, outlier detection %v, client %d: priorities %s, want %s", c.balancer, c.ejects, i, got, c.want[i])
			}
		}
	}
}

// TestShares: the real istiod sent these weights. A locality without one keeps its own, and has no endpoints.
func TestShares(t *testing.T) {
	localities := []string{"//", "r1/z1/s1", "r1/z1/s2", "r1/z2/s1", "r2/z1/s1", "r3/z1/s1", "r3/z2/s1"}
	for to, want := range map[string]string{
		`"r1/*": 70, "r2/*": 30`:                      "- 44 9 18 30 - -",
		`"r1/z1/*": 80, "r1/z2/*": 20`:                "- 67 14 20 - - -",
		`"r1/z1/s1": 50, "r3/*": 50`:                  "- 50 - - - 13 38",
		`"r9/*": 40, "r3/*": 60`:                      "- - - - - 15 45",
		`"r1/z1/s1": 1, "r1/z1/s2": 9, "r3/z2/*": 90`: "- 1 9 - - - 90",
	} {
		d := &networkingv1alpha3.LocalityLoadBalancerSetting_Distribute{}
		must.Succeed(t, protojson.Unmarshal([]byte(`{"to":{`+to+`}}`), d))
		var list []*endpointv3.LocalityLbEndpoints
		for _, l := range localities {
			group := &endpointv3.LocalityLbEndpoints{Locality: locality(localityAt(l)), LoadBalancingWeight: envoy.UInt32(0)}
			for _, e := range spread() {
				if e.Locality == localityAt(l) {
					group.LbEndpoints = append(group.LbEndpoints, &endpointv3.LbEndpoint{})
					group.LoadBalancingWeight.Value += e.Weight
				}
			}
			list = append(list, group)
		}
		distribute(list, d)
		var got []string
		for _, l := range list {
			text := fmt.Sprint(l.LoadBalancingWeight.Value)
			if len(l.LbEndpoints) == 0 {
				text = "-"
			}
			got = append(got, text)
		}
		if text := strings.Join(got, " "); text != want {
			t.Errorf("%s: weights %s, want %s", to, text, want)
		}
	}
	for pattern, want := range map[string][]string{"*": localities, "r1": {"r1/z1/s1", "r1/z1/s2", "r1/z2/s1"},
		"r1/z1/*": {"r1/z1/s1", "r1/z1/s2"}, "r1/z1/s2": {"r1/z1/s2"}, "z1": nil} {
		var got []string
		for _, l := range localities {
			if matches(pattern, localityAt(l)) {
				got = append(got, l)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s covers %v, want %v", pattern, got, want)
		}
	}
}
