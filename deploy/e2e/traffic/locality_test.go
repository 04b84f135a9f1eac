package traffic

import (
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
)

const (
	localityGateway = "10.10.0.12:8000"
)

// localityYAML has a gateway in region1/zone1, a client without a sidecar, and routes to echo. There is no mutual
// TLS, so no proxy needs certificates.
var localityYAML = suite.NamespacesYAML("istio-system", "a") + suite.PeerAuthenticationYAML("DISABLE") +
	suite.ServiceYAML("echo", "a", "10.96.0.10") +
	suite.GatewayPodYAML("gateway", "a", "10.10.0.12", "istio-locality: region1.zone1") +
	suite.PodYAML("client", "a", "10.10.0.13", "", suite.Outside) +
	suite.GatewayYAML("gateway", "a", 8000) +
	`apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: echo, namespace: a}
spec:
  hosts: ["*"]
  gateways: [gateway]
  http:
  - match: [{uri: {prefix: /near}}]
    route: [{destination: {host: echo}}]
    retries: {attempts: 3, retryOn: "503", retryRemoteLocalities: false}
  - match: [{uri: {prefix: /remote}}]
    route: [{destination: {host: echo}}]
    retries: {attempts: 3, retryOn: "503", retryRemoteLocalities: true}
  - route: [{destination: {host: echo}}]
    retries: {attempts: 0}
---
`

// servers are the pods of echo with their localities.
var servers = map[string]string{"near": "region1.zone1", "next": "region1.zone2", "far": "region2.zone1", "chosen": "region3.zone1"}

// localityMesh is a control plane that follows a directory, and the pods of the directory.
type localityMesh struct {
	mesh
	failed map[string]*atomic.Bool // the servers that answer 503
}

// startLocality runs the mesh, and returns once its proxies are ready.
func startLocality(t *testing.T) localityMesh {
	t.Helper()
	text := localityYAML
	for i, name := range slices.Sorted(maps.Keys(servers)) {
		text += fmt.Sprintf(`---
apiVersion: v1
kind: Pod
metadata: {name: %[1]s, namespace: a, labels: {app: echo, name: %[1]s, istio-locality: %[2]s, sidecar.istio.io/inject: "false"}}
spec: {containers: [{name: app, image: echo}]}
status: {phase: Running, podIP: 10.10.0.%[3]d, podIPs: [{ip: 10.10.0.%[3]d}], conditions: [{type: Ready, status: "True"}]}
`, name, servers[name], 21+i)
	}
	m := localityMesh{start(t, text, suite.MeshOptions{}), map[string]*atomic.Bool{}}
	for name := range servers {
		failed := &atomic.Bool{}
		m.failed[name] = failed
		m.handle(name, 8080, func(w http.ResponseWriter, _ *http.Request) {
			if failed.Load() {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			_, _ = io.WriteString(w, name)
		})
	}
	return m
}

// rule writes the DestinationRule of echo.
func (m localityMesh) rule(policy string) {
	m.t.Helper()
	m.write("rule.yaml",
		"apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: echo, namespace: a}\nspec: {host: echo, trafficPolicy: "+
			policy+"}\n")
}

// call sends a request from the client through the gateway, and returns the server that answered.
func (m localityMesh) call(path string) (string, error) {
	r, err := m.do(request{from: "client", address: localityGateway, path: path})
	if err == nil && r.status != http.StatusOK {
		err = fmt.Errorf("status %d", r.status)
	}
	if err != nil {
		return "", err
	}
	return string(r.body), nil
}

// answers sends n requests and counts the answers by server. A failed request is counted under an empty name.
func (m localityMesh) answers(n int) map[string]int {
	by := map[string]int{}
	for range n {
		who, _ := m.call("/")
		by[who]++
	}
	return by
}

// onlyFrom waits until only those servers answer, and each of them does.
func (m localityMesh) onlyFrom(what string, want ...string) {
	m.t.Helper()
	slices.Sort(want)
	suite.Eventually(m.t, fmt.Sprintf("%s: answers of %v alone", what, want), func() bool {
		return slices.Equal(slices.Sorted(maps.Keys(m.answers(40))), want)
	})
}

// TestFailover: without a rule all localities are equal. With outlier detection requests stay in the zone of the
// gateway, then in its region, and leave it when all its endpoints fail: to any region, or to the configured one.
func TestFailover(t *testing.T) {
	const detection = `outlierDetection: {consecutive5xxErrors: 1, interval: 600s, baseEjectionTime: 600s, maxEjectionPercent: 100}`
	t.Run("anywhere", func(t *testing.T) {
		m := startLocality(t)
		m.onlyFrom("no rule", "near", "next", "far", "chosen")
		m.rule(`{` + detection + `, loadBalancer: {localityLbSetting: {enabled: false}}}`)
		m.onlyFrom("a rule that turns localities off", "near", "next", "far", "chosen")
		m.rule(`{` + detection + `}`)
		m.onlyFrom("the zone", "near")
		m.failed["near"].Store(true)
		m.onlyFrom("the region", "next")
		m.failed["next"].Store(true)
		m.onlyFrom("other regions", "far", "chosen")
	})
	t.Run("to a region", func(t *testing.T) {
		m := startLocality(t)
		m.rule(`{` + detection + `, loadBalancer: {localityLbSetting: {failover: [{from: region1, to: region3}]}}}`)
		m.onlyFrom("the zone", "near")
		m.failed["near"].Store(true)
		m.failed["next"].Store(true)
		m.onlyFrom("the region that stands in", "chosen")
		m.failed["chosen"].Store(true)
		m.onlyFrom("the last region", "far")
	})
}

// TestPriority: endpoints with a label come first, whatever their locality.
func TestPriority(t *testing.T) {
	m := startLocality(t)
	const policy = `outlierDetection: {consecutive5xxErrors: 1, interval: 600s, baseEjectionTime: 600s, maxEjectionPercent: 100}`
	m.rule(`{` + policy + `, loadBalancer: {localityLbSetting: {failoverPriority: [name=far]}}}`)
	m.onlyFrom("the label", "far")
	m.failed["far"].Store(true)
	m.onlyFrom("no label", "near", "next", "chosen")
}

// TestRetries: retries stay in the locality of the failed request, or leave it if they may.
func TestRetries(t *testing.T) {
	m := startLocality(t)
	m.rule(`{outlierDetection: {consecutive5xxErrors: 1000, interval: 600s, baseEjectionTime: 600s}}`)
	m.onlyFrom("the zone", "near")
	m.failed["near"].Store(true)
	for range 10 {
		if who, err := m.call("/near"); err == nil {
			t.Errorf("a retry in the zone is answered by %s", who)
		}
		if who, err := m.call("/remote"); err != nil || who != "next" {
			t.Errorf("a retry in other localities: %q, %v", who, err)
		}
	}
}

// TestDistribution: requests are spread over localities by the weights for the gateway's locality. A locality without a
// weight gets none, and weights for other localities do not apply.
func TestDistribution(t *testing.T) {
	m := startLocality(t)
	m.rule(`{loadBalancer: {localityLbSetting: {distribute: [{from: region2/*, to: {region2/*: 100}}, {from: region1/zone1/*, to: ` +
		`{region1/zone1/*: 80, region2/*: 20}}]}}}`)
	m.onlyFrom("two localities", "near", "far")
	const n, p = 600, 0.2
	bound := 5 * math.Sqrt(p*(1-p)/n)
	by := m.answers(n)
	if got := float64(by["far"]) / n; math.Abs(got-p) > bound || by["near"]+by["far"] != n {
		t.Errorf("answers by server: %v, want %.0f +- %.0f of far, and the others of near", by, p*n, bound*n)
	}
	m.rule(`{loadBalancer: {localityLbSetting: {distribute: [{from: region2/*, to: {region2/*: 100}}]}}}`)
	m.onlyFrom("weights for another region", "near", "next", "far", "chosen")
}
