package traffic

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// ejected returns how many endpoints of a port of web the gateway has ejected.
func (m destinationRuleMesh) ejected(port int) int {
	m.t.Helper()
	clusters, err := m.Pod("gateway").Proxy.Get(m.t.Context(), "/clusters")
	must.Succeed(m.t, err)
	n := 0
	for line := range strings.Lines(string(clusters)) {
		if strings.HasPrefix(line, fmt.Sprintf("outbound|%d||web.a.", port)) && strings.Contains(line, "::health_flags::") &&
			strings.Contains(line, "failed_outlier_check") {
			n++
		}
	}
	return n
}

// TestOutliers: endpoints are ejected for the failures that the rule names, at most as many as it allows, and still get
// requests if too few are healthy.
func TestOutliers(t *testing.T) {
	m := startDestinationRule(t, "")
	m.serveHTTP("one", 8080, 8081)
	m.serveHTTP("two", 8080) // the other port has no listener
	c := m.client(true)
	const always = `interval: 600s, baseEjectionTime: 600s`
	servers := func(path string) []string {
		by := map[string]bool{}
		for range 30 {
			by[m.get(c, path).server] = true
		}
		return slices.Sorted(maps.Keys(by))
	}
	for _, x := range []struct {
		name, detection, says string
		port                  int
		path                  string
		ejected               int
		servers               []string // "" is the gateway
		either                bool     // one of the servers
	}{
		{"connections that fail",
			`{splitExternalLocalOriginErrors: true, consecutiveLocalOriginFailures: 1, maxEjectionPercent: 100, ` + always + `}`,
			`"split_external_local_origin_errors": true`, 81, "/half", 1, []string{"one"}, false},
		{"connections that fail are no answers",
			`{splitExternalLocalOriginErrors: true, consecutiveLocalOriginFailures: 0, consecutive5xxErrors: 1, maxEjectionPercent: 100, ` +
				always + `}`,
			`"consecutive_5xx": 1`, 81, "/half", 0, []string{"", "one"}, false},
		{"connections that fail where they count as answers",
			`{consecutiveGatewayErrors: 1, consecutive5xxErrors: 0, maxEjectionPercent: 100, ` + always + `}`,
			`"consecutive_gateway_failure": 1`, 81, "/half", 1, []string{"one"}, false},
		{"codes of gateways", `{consecutiveGatewayErrors: 1, consecutive5xxErrors: 0, maxEjectionPercent: 50, ` + always + `}`,
			`"consecutive_gateway_failure": 1`, 80, "/fail/503", 1, []string{"one", "two"}, true},
		{"other codes", `{consecutiveGatewayErrors: 1, consecutive5xxErrors: 0, maxEjectionPercent: 100, ` + always + `}`,
			`"consecutive_gateway_failure": 1`, 80, "/fail/500", 0, []string{"one", "two"}, false},
		{"all of them", `{consecutive5xxErrors: 1, maxEjectionPercent: 100, ` + always + `}`, `"consecutive_5xx": 1`, 80, "/fail/500", 2,
			[]string{""}, false},
		{"all of them, where half should be well", `{consecutive5xxErrors: 1, maxEjectionPercent: 100, minHealthPercent: 50, ` + always + `}`,
			`"healthy_panic_threshold": { "value": 50 }`, 80, "/fail/500", 2, []string{"one", "two"}, false},
	} {
		m.takes("web", x.port, `{outlierDetection: `+x.detection+`, connectionPool: {tcp: {connectTimeout: 5s}}}`, x.says)
		suite.Eventually(t, x.name+" eject", func() bool { servers(x.path); return m.ejected(x.port) == x.ejected })
		suite.Eventually(t, fmt.Sprintf("%s: %q answer", x.name, x.servers), func() bool { // its threads learn of it one by one
			got := servers(x.path)
			return slices.Equal(got, x.servers) || x.either && len(got) == 1 && slices.Contains(x.servers, got[0])
		})
		if n := m.ejected(x.port); n != x.ejected {
			t.Errorf("%s: %d are ejected, want %d", x.name, n, x.ejected)
		}
	}
}
