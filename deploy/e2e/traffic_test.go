package e2e

import (
	"context"
	"fmt"
	"math"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/load"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/world"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// rate is in requests a second, for each of the loads.
const rate = 120

// startTraffic sends through a sidecar and through the gateway until the test ends; one failed request fails it.
func startTraffic(t *testing.T, m *mesh, addr, host string) load.Traffic {
	t.Helper()
	return load.Begin(t, load.Options{
		Rate: rate, Timeout: 30 * time.Second, Overdue: func() { t.Logf("a request waits:\n%s", m.World.Waits()) },
	}, overHTTP(m.World.Pod("client").Location.DialContext, "HTTP/1.1", addr, host),
		overHTTP(new(net.Dialer).DialContext, "HTTP/1.1", ingress, ingressHost))
}

// testSplit sends through a weighted route, counts, changes the weights while it runs, and counts again.
func testSplit(t *testing.T, m *mesh) {
	t.Cleanup(func() { m.remove(t, "weights.yaml") })
	one := overHTTP(m.World.Pod("client").Location.DialContext, "HTTP/1.1", "10.96.0.14:80", "split")
	share := func(n int) float64 {
		second := 0
		for range n {
			ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
			name, err := one(ctx)
			cancel()
			must.Succeed(t, err)
			if name == "echo-2" {
				second++
			}
		}
		return float64(second) / float64(n)
	}
	for _, weight := range []int{10, 50, 75} {
		before := m.routeLoads(t, "client")
		m.write(t, "weights.yaml", weights(weight))
		suite.Eventually(t, fmt.Sprintf("the client's Envoy has %d %% for v2", weight), func() bool { return m.routeLoads(t, "client") > before })
		const n = 1500
		p := float64(weight) / 100
		// Choices are independent: five standard deviations of the binomial distribution are left once in two million
		// runs.
		bound := 5 * math.Sqrt(p*(1-p)/n)
		if got := share(n); math.Abs(got-p) > bound {
			t.Errorf("v2 answered %.1f %% of %d requests, want %.1f +- %.1f %%", 100*got, n, 100*p, 100*bound)
		} else {
			t.Logf("v2 answered %.1f %% of %d requests, want %.1f +- %.1f %%", 100*got, n, 100*p, 100*bound)
		}
	}
	m.healthy(t)
}

// routeLoads counts the route configurations that a pod's Envoy has taken.
func (m *mesh) routeLoads(t *testing.T, pod string) int {
	t.Helper()
	stats, err := m.World.Pod(pod).Proxy.Stats(t.Context(), `rds\..*config_reload$`)
	must.Succeed(t, err)
	n := 0
	for _, v := range stats {
		n += v
	}
	return n
}

// weights sends so many percent of the split service's requests to its second version.
func weights(second int) string {
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: VirtualService
metadata:
  name: split
  namespace: mesh
spec:
  hosts: [split]
  http:
  - route:
    - destination: {host: split, subset: v1}
      weight: %d
    - destination: {host: split, subset: v2}
      weight: %d
`, 100-second, second)
}

// testSubsets leads a route from one subset to another that comes in the same change, again and again under load. Envoy
// answers 503 to what a route sends to a cluster whose endpoints have not come yet.
func testSubsets(t *testing.T, m *mesh) {
	tr := startTraffic(t, m, "10.96.0.10:80", "echo")
	for i := range 20 {
		before := m.routeLoads(t, "client")
		m.write(t, "subsets.yaml", subsets(i))
		suite.Eventually(t, fmt.Sprintf("the client's Envoy has the routes of subset %d", i),
			func() bool { return m.routeLoads(t, "client") > before })
	}
	m.remove(t, "subsets.yaml")
	tr.Answers(t, "echo-1")
	m.healthy(t)
}

// subsets sends the echo service's requests to a subset that was not there before; the one before stays as long.
func subsets(i int) string {
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata:
  name: subsets
  namespace: mesh
spec:
  host: echo
  subsets:
  - {name: s%[1]d, labels: {app: echo}}
  - {name: s%[2]d, labels: {app: echo}}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata:
  name: subsets
  namespace: mesh
spec:
  hosts: [echo]
  http:
  - route:
    - destination: {host: echo, subset: s%[2]d}
`, i, i+1)
}

// testEndpoints lets a server come, turn unready and ready again, and go, twice, under load.
func testEndpoints(t *testing.T, m *mesh) {
	tr := startTraffic(t, m, "10.96.0.10:80", "echo")
	for range 2 {
		m.write(t, "echo-3.yaml", podYAML("echo-3", "10.10.0.23", "v1", false))
		m.addPod(t, "echo-3")
		m.write(t, "echo-3.yaml", podYAML("echo-3", "10.10.0.23", "v1", true))
		tr.Answers(t, "echo-3")
		m.write(t, "echo-3.yaml", podYAML("echo-3", "10.10.0.23", "v1", false))
		tr.Silent(t, "echo-3")
		m.write(t, "echo-3.yaml", podYAML("echo-3", "10.10.0.23", "v1", true))
		tr.Answers(t, "echo-3")
		m.drainPod(t, tr, "echo-3")
		tr.Answers(t, "echo-1")
	}
	m.healthy(t)
}

// addPod starts a pod that is in the directory already, and waits for its Envoy.
func (m *mesh) addPod(t *testing.T, name string) {
	t.Helper()
	directory, err := world.Read(m.Dir)
	must.Succeed(t, err)
	for _, p := range directory.Pods {
		if p.Node.Name != name {
			continue
		}
		r, err := m.World.Add(p)
		must.Succeed(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
		defer cancel()
		must.Succeed(t, r.Proxy.Ready(ctx))
		return
	}
	t.Fatalf("no pod %s in the directory", name)
}

// drainPod takes a server away as a cluster does: first it is no endpoint any more, then its pod goes. A pod that goes
// while it is sent requests may lose those that are under way: its Envoy drops a cluster before the routes that lead
// there.
func (m *mesh) drainPod(t *testing.T, tr load.Traffic, name string) {
	t.Helper()
	m.write(t, name+".yaml", podYAML(name, "10.10.0.23", "v1", false))
	tr.Silent(t, name)
	m.remove(t, name+".yaml")
	m.World.Remove(name)
}

// testBrokenFile tears a file under load: what it last said holds until it is mended.
func testBrokenFile(t *testing.T, m *mesh) {
	t.Cleanup(func() { m.remove(t, "weights.yaml") })
	m.write(t, "weights.yaml", weights(0))
	tr := startTraffic(t, m, "10.96.0.14:80", "split")
	sidecar := tr[:1]
	sidecar.Silent(t, "echo-2")
	for name, broken := range map[string]string{
		"torn":            weights(100)[:150] + `"`,
		"a field unknown": strings.Replace(weights(100), "weight: 100", "wait: 100", 1),
	} {
		m.write(t, "weights.yaml", broken)
		first, second := sidecar.Heard("echo-1"), sidecar.Heard("echo-2")
		suite.Eventually(t, name+": the first answers as the last good content says",
			func() bool { return sidecar.Heard("echo-1") >= first+2*rate })
		if n := sidecar.Heard("echo-2") - second; n > 0 {
			t.Errorf("%s: %d requests to the second version, want all to the first as the last good content says", name, n)
		}
		m.write(t, "weights.yaml", weights(100))
		sidecar.Answers(t, "echo-2")
		sidecar.Silent(t, "echo-1")
		m.write(t, "weights.yaml", weights(0))
		sidecar.Silent(t, "echo-2")
	}
	m.healthy(t)
}

// testRestart kills the control plane under load, changes the world, and starts it again: nobody notices but by the
// change.
func testRestart(t *testing.T, m *mesh) {
	m.write(t, "echo-3.yaml", podYAML("echo-3", "10.10.0.23", "v1", false))
	m.addPod(t, "echo-3")
	tr := startTraffic(t, m, "10.96.0.10:80", "echo")
	tr.Answers(t, "echo-1")

	m.Pilot.Kill()
	m.write(t, "echo-3.yaml", podYAML("echo-3", "10.10.0.23", "v1", true))
	m.write(t, "weights.yaml", weights(100))
	pods := m.edit(t, "pods.yaml", `status: "True"`, `status: "False"`)
	time.Sleep(2 * time.Second)
	tr.Answers(t, "echo-1")

	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	must.Succeed(t, m.Pilot.Restart(ctx))
	tr.Answers(t, "echo-3")
	tr.Silent(t, "echo-1")
	one := overHTTP(m.World.Pod("client").Location.DialContext, "HTTP/1.1", "10.96.0.14:80", "split")
	suite.Eventually(t, "the route written meanwhile holds", func() bool {
		name, err := one(ctx)
		return err == nil && name == "echo-2"
	})

	m.write(t, "pods.yaml", pods)
	tr.Answers(t, "echo-1")
	m.remove(t, "weights.yaml")
	m.drainPod(t, tr, "echo-3")
	m.healthy(t)
}
