package translate_test

import (
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/proto"

	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// TestInboundSourcesByFamily: a sidecar calls its own workload from an address of each of its address families.
func TestInboundSourcesByFamily(t *testing.T) {
	s := newWorld(t, mesh.Default()).apply(services(t, 1)...)
	for ips, want := range map[string]string{"10.1.0.1": "127.0.0.6", "2001:db8::1": "::6", "10.1.0.1 2001:db8::1": "127.0.0.6 ::6",
		"2001:db8::1 10.1.0.1": "127.0.0.6 ::6"} {
		tr, who := newTranslator(0), *testProxies()["web"]
		who.IPs = strings.Fields(ips)
		c := &clusterv3.Cluster{}
		must.Succeed(t, proto.Unmarshal(tr.Wildcard(s, tr.ResolveCohort(s, &who), envoy.ClusterType).Get("InboundPassthroughCluster").Value(), c))
		got := []string{c.GetUpstreamBindConfig().GetSourceAddress().GetAddress()}
		for _, extra := range c.GetUpstreamBindConfig().GetExtraSourceAddresses() {
			got = append(got, extra.GetAddress().GetAddress())
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: from %v, want %s", ips, got, want)
		}
	}
}
