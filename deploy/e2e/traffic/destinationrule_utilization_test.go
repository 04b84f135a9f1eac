package traffic

import (
	"net/http"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
)

// TestUtilization: an endpoint that reports more load with its responses gets fewer requests.
func TestUtilization(t *testing.T) {
	m := startDestinationRule(t, "")
	for pod, load := range map[string]string{"one": "0.9", "two": "0.1"} {
		m.handle(pod, 8080, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Server", pod)
			w.Header().Set("Endpoint-Load-Metrics", "TEXT application_utilization="+load+",rps_fractional=100")
		})
	}
	const n = 60
	c := m.client(true)
	second := func() (by int) {
		for range n {
			if m.get(c, "/").server == "two" {
				by++
			}
		}
		return by
	}
	m.takes("web", 80, `{loadBalancer: {simple: ROUND_ROBIN}}`, `"web.a.svc.cluster.local"`)
	suite.Eventually(t, "both endpoints have their share", func() bool { by := second(); return by > n/3 && by < n*2/3 })
	m.takes("web", 80, `{loadBalancer: {backendUtilization: {weightStabilizationPeriod: 0s, weightUpdatePeriod: 0.1s}}}`,
		`"blackout_period": "0s"`)
	suite.Eventually(t, "the endpoint with less load has most of the requests", func() bool { return second() >= n*3/4 })
}
