package traffic

import (
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"slices"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
)

// zonesYAML has Services of callers, which have sidecars, and of servers. Requests to servers are balanced by zone.
var zonesYAML = suite.NamespacesYAML("istio-system", "a") + suite.PeerAuthenticationYAML("DISABLE") +
	suite.ServiceYAML("caller", "a", "10.96.0.9") + suite.ServiceYAML("server", "a", "10.96.0.10") +
	`apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: server, namespace: a}
spec: {host: server, trafficPolicy: {loadBalancer: {zoneAwareLbSetting: {minClusterSize: 1}}}}
`

// zonePod returns the document of a Pod of the service app in a zone. ready is the status of its condition Ready. All
// Pods of a service have one workload.
func zonePod(name, app, zone string, ordinal int, ready, labels string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata:
  name: %[1]s
  namespace: a
  labels: {app: %[2]s, service.istio.io/workload-name: %[2]s, istio-locality: r1.%[3]s, %[6]s}
spec: {serviceAccountName: %[2]s, containers: [{name: app, image: echo}]}
status: {phase: Running, podIP: 10.10.0.%[4]d, podIPs: [{ip: 10.10.0.%[4]d}], conditions: [{type: Ready, status: "%[5]s"}]}
`, name, app, zone, ordinal, ready, labels)
}

// TestZones checks that a caller keeps as many requests in its zone as the servers there can take, by the shares of the
// zones in the callers and in the servers, and that the shares follow the callers. Half of the servers are in zone 1
// and a quarter in each of zones 2 and 3. Half of the callers are in zone 3.
func TestZones(t *testing.T) {
	files := map[string]string{}
	for i, zone := range []string{"z1", "z2", "z3", "z3"} {
		name := fmt.Sprint("caller", i+1)
		files[name+".yaml"] = zonePod(name, "caller", zone, 11+i, "True", suite.Sidecar)
	}
	zones := map[string]string{"server1": "z1", "server2": "z1", "server3": "z2", "server4": "z3"}
	for i, name := range slices.Sorted(maps.Keys(zones)) {
		files[name+".yaml"] = zonePod(name, "server", zones[name], 21+i, "True", suite.Outside)
	}
	m := start(t, zonesYAML, suite.MeshOptions{Files: files, CA: true, AgentEnv: []string{"ISTIO_META_ENABLE_SELF_DISCOVERY=true"}})
	for name, zone := range zones {
		m.handle(name, 8080, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, zone) })
	}
	answers := func(from string, n int) map[string]int {
		by := map[string]int{}
		for range n {
			r, err := m.do(request{from: from, address: "10.96.0.10:80", host: "server"})
			if err != nil || r.status != http.StatusOK {
				r.body = nil
			}
			by[string(r.body)]++
		}
		return by
	}
	onlyFrom := func(from string, want ...string) {
		t.Helper()
		suite.Eventually(t, fmt.Sprintf("answers to %s from %v alone", from, want), func() bool {
			return slices.Equal(slices.Sorted(maps.Keys(answers(from, 40))), want)
		})
	}
	// share checks how many of the requests of caller3 stay in zone 3, where the others go to zone 1.
	share := func(what string, want float64) {
		t.Helper()
		const n = 600
		bound := 5 * math.Sqrt(want*(1-want)/n)
		if by := answers("caller3", n); math.Abs(float64(by["z3"])/n-want) > bound || by["z1"]+by["z3"] != n {
			t.Errorf("%s: answers by zone %v, want %.0f +- %.0f from z3 and the others from z1", what, by, want*n, bound*n)
		}
	}
	onlyFrom("caller1", "z1")
	onlyFrom("caller2", "z2")
	onlyFrom("caller3", "z1", "z3")
	share("half of the callers, and a quarter of the servers", 0.5)
	m.write("caller4.yaml", zonePod("caller4", "caller", "z3", 14, "False", suite.Sidecar))
	suite.Eventually(t, "caller3 knows that another caller is not ready", func() bool {
		stats, err := m.Pod("caller3").Proxy.Stats(t.Context(), "cluster.local_cluster;.membership_healthy")
		return err == nil && stats["cluster.local_cluster;.membership_healthy"] == 3
	})
	share("a third of the callers that are ready, and a quarter of the servers", 0.75)
	m.healthy()
}
