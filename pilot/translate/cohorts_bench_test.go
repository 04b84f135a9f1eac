package translate_test

import (
	"fmt"
	"testing"

	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// BenchmarkCohorts measures the first proxy of a namespace with everything that it asks for: in a small mesh, and with
// a large object in it.
func BenchmarkCohorts(b *testing.B) {
	for _, large := range []string{"", "VirtualServiceHosts", "DestinationRuleSubsets"} {
		w := newWorld(b, mesh.Default())
		all := append(services(b, 12), objects(b, "world.yaml", []byte(smallWorld))...)
		if large != "" {
			all = append(all, objects(b, "large.yaml", []byte(largeObjects()[large](1000, 0)))...)
		}
		s := w.apply(all...)
		var table envoy.NameInterner
		tr := newTranslator(64 << 20)
		tr.Prepare(s)
		i := 0
		measure(b, "large="+large, func() {
			p := *testProxies()["web"]
			p.Name, p.Namespace, p.IPs = fmt.Sprint("p", i), fmt.Sprint("ns", i), []string{fmt.Sprintf("10.9.%d.%d", i/250%250, i%250)}
			p.Domain, p.Labels = p.Namespace+".svc.cluster.local", map[string]string{"app": p.Name}
			i++
			c := tr.ResolveCohort(s, &p)
			var clusters []string
			for r := range tr.Wildcard(s, c, envoy.ClusterType).All {
				clusters = append(clusters, r.Name)
			}
			tr.Wildcard(s, c, envoy.ListenerType)
			for url, names := range map[string][]string{envoy.EndpointType: clusters, envoy.RouteType: {"80", "8081"}} {
				if _, err := tr.Get(s, c, url, table.Intern(names)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
