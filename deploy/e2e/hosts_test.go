package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/load"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// held is how long Envoy holds a listener back whose virtual hosts do not come.
const held = 15 * time.Second

// notHeld waits for something that Envoy would hold back, were virtual hosts missing, and fails the test if it took
// half of that time. On a machine that is starved it may take as long for other reasons.
func notHeld(t *testing.T, tr load.Traffic, wait func()) {
	t.Helper()
	began := time.Now()
	wait()
	switch took := time.Since(began); {
	case took <= held/2:
	case tr.Starved():
		t.Logf("%s is too long, but the machine is starved: whether Envoy waited for virtual hosts cannot be said", took)
	default:
		t.Errorf("%s: Envoy waited for virtual hosts", took)
	}
}

// lateService is a service of the echo pods with those ports.
func lateService(ports ...int) string {
	var b strings.Builder
	b.WriteString(
		"apiVersion: v1\nkind: Service\nmetadata: {name: late, namespace: mesh}\nspec:\n  clusterIP: 10.96.0.77\n  selector: {app: echo}\n" +
			"  ports:\n")
	for _, p := range ports {
		fmt.Fprintf(&b, "  - {name: http-%d, port: %d, targetPort: 8080}\n", p, p)
	}
	return b.String()
}

// lateTimeout marks the late service's routes, so that they can be recognised.
func lateTimeout(seconds int) string {
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: late, namespace: mesh}
spec:
  hosts: [late]
  http:
  - timeout: %ds
    route: [{destination: {host: late}}]
`, seconds)
}

// emptyGateway is a server of the gateway, on a port of its own, that no route is bound to.
const (
	emptyGateway = `apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: late, namespace: mesh}
spec:
  selector: {istio: ingressgateway}
  servers:
  - port: {number: 8090, name: http, protocol: HTTP}
    hosts: ["*.late.example.com"]
`
	gatewayRoute = `apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: late-ingress, namespace: mesh}
spec:
  hosts: [%s.late.example.com]
  gateways: [late]
  http:
  - route: [{destination: {host: echo, port: {number: 80}}}]
`
)

// routing is what the Envoy of a pod has of one route configuration.
type routing struct {
	divided bool // its virtual hosts came by themselves
	hosts   []string
	text    string
}

// routing reads it, and reports whether it is there.
func (m *mesh) routing(t *testing.T, pod, name string) (routing, bool) {
	t.Helper()
	body, err := m.World.Pod(pod).Proxy.Get(t.Context(), "/config_dump?resource=dynamic_route_configs")
	must.Succeed(t, err)
	var dump struct {
		Configs []struct {
			RouteConfig json.RawMessage `json:"route_config"`
		} `json:"configs"`
	}
	must.Succeed(t, json.Unmarshal(body, &dump))
	for _, c := range dump.Configs {
		var rc struct {
			Name         string          `json:"name"`
			VHDS         json.RawMessage `json:"vhds"`
			VirtualHosts []struct {
				Name    string
				Domains []string
			} `json:"virtual_hosts"`
		}
		must.Succeed(t, json.Unmarshal(c.RouteConfig, &rc))
		if rc.Name == name {
			r := routing{divided: rc.VHDS != nil, text: string(c.RouteConfig)}
			for _, h := range rc.VirtualHosts {
				if !strings.HasPrefix(h.Domains[0], "removed.invalid/") { // what stays of one that was removed
					r.hosts = append(r.hosts, h.Name)
				}
			}
			return r, true
		}
	}
	return routing{}, false
}

// testHosts has virtual hosts and route configurations come, change and go under load, and the control plane die and
// change its mind of how it sends them.
func testHosts(t *testing.T, m *mesh) {
	const late, fallback = "late.mesh.svc.cluster.local", "allow_any"
	dial := m.World.Pod("client").Location.DialContext
	tr := startTraffic(t, m, "10.96.0.10:80", "echo")
	answers := func(port int) {
		t.Helper()
		one := overHTTP(dial, "HTTP/1.1", fmt.Sprintf("10.96.0.77:%d", port), fmt.Sprintf("late:%d", port))
		suite.Eventually(t, fmt.Sprintf("the late service answers on %d", port), func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			from, err := one(ctx)
			return err == nil && strings.HasPrefix(from, "echo")
		})
	}
	has := func(what, route string, ok func(routing) bool) {
		t.Helper()
		var last routing
		defer func() {
			if t.Failed() {
				t.Logf("route configuration %s has %v: %s", route, last.hosts, last.text)
			}
		}()
		suite.Eventually(t, what, func() bool {
			r, there := m.routing(t, "client", route)
			last = r
			return there && ok(r)
		})
	}
	divided := func(r routing) bool { return r.divided && slices.Contains(r.hosts, fallback) }
	has("virtual hosts come by themselves", "80",
		func(r routing) bool { return divided(r) && slices.Contains(r.hosts, "echo.mesh.svc.cluster.local:80") })

	for range 2 { // the second time Envoy has seen the names before
		m.write(t, "late.yaml", lateService(8085))
		notHeld(t, tr, func() { answers(8085) })
		has("a new route configuration has both hosts", "8085", func(r routing) bool { return divided(r) && len(r.hosts) == 2 })
		m.write(t, "late.yaml", lateService(8085, 80))
		answers(80)
		m.write(t, "late-route.yaml", lateTimeout(7))
		has("a route changes", "80", func(r routing) bool { return strings.Contains(r.text, `"timeout": "7s"`) })
		m.remove(t, "late-route.yaml")
		has("and changes back", "80", func(r routing) bool { return !strings.Contains(r.text, `"timeout": "7s"`) })
		m.write(t, "late.yaml", lateService(80))
		suite.Eventually(t, "the route configuration is gone", func() bool { _, there := m.routing(t, "client", "8085"); return !there })
		m.remove(t, "late.yaml")
		has("the virtual host is gone", "80", func(r routing) bool { return divided(r) && !slices.Contains(r.hosts, late+":80") })
	}

	testEmptyRoutes(t, m, tr)
	testTombstones(t, m)

	for i, enabled := range []string{"true", "false", "true"} {
		m.Pilot.Kill()
		m.write(t, "late.yaml", lateService(80, 8085))
		m.write(t, "late-route.yaml", lateTimeout(20+i))
		t.Setenv("PILOT_ENABLE_VHDS", enabled)
		ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
		err := m.Pilot.Restart(ctx)
		cancel()
		must.Succeed(t, err)
		answers(80)
		notHeld(t, tr, func() { answers(8085) })
		for _, route := range []string{"80", "8085"} {
			has("what changed meanwhile is there", route, func(r routing) bool {
				return strings.Contains(r.text, fmt.Sprintf(`"timeout": "%ds"`, 20+i)) && slices.Contains(r.hosts, fallback)
			})
		}
		m.remove(t, "late-route.yaml")
		has("what changes now is, too", "8085", func(r routing) bool {
			return !strings.Contains(r.text, `"timeout": "2`) && slices.Contains(r.hosts, late+":8085")
		})
	}
	m.remove(t, "late.yaml")
	suite.Eventually(t, "the route configuration is gone", func() bool { _, there := m.routing(t, "client", "8085"); return !there })
	tr.Answers(t, "echo-1")
	m.healthy(t)
}

// testTombstones takes more virtual hosts from a gateway than its Envoy may be left with what it keeps of: the route
// configuration comes in one piece then, without any of it.
func testTombstones(t *testing.T, m *mesh) {
	const files, many = 10, 500
	m.write(t, "late-gateway.yaml", emptyGateway+"---\n"+fmt.Sprintf(gatewayRoute, "one"))
	for f := range files {
		var b strings.Builder
		for i := range many {
			name := fmt.Sprintf("many-%d-%d", f, i)
			fmt.Fprintf(&b, "---\n%s", strings.ReplaceAll(fmt.Sprintf(gatewayRoute, name), "late-ingress", name))
		}
		m.write(t, fmt.Sprintf("many-%d.yaml", f), b.String())
	}
	has := func(what string, ok func(routing) bool) {
		t.Helper()
		var last routing
		defer func() {
			if t.Failed() {
				t.Logf("divided %t, %d virtual hosts, %d bytes, vacancies %t", last.divided, len(last.hosts), len(last.text),
					strings.Contains(last.text, "removed.invalid"))
			}
		}()
		suite.Eventually(t, what, func() bool {
			r, there := m.routing(t, "ingress", "http.8090")
			last = r
			return there && ok(r)
		})
	}
	has("all virtual hosts are there, by themselves", func(r routing) bool { return r.divided && len(r.hosts) == files*many+1 })
	for f := range files {
		m.remove(t, fmt.Sprintf("many-%d.yaml", f))
	}
	has("nothing is left of them", func(r routing) bool {
		return !r.divided && len(r.hosts) == 1 && !strings.Contains(r.text, "removed.invalid")
	})
	for range 2 { // and what is whole comes back
		m.remove(t, "late-gateway.yaml")
		suite.Eventually(t, "the gateway's route configuration is gone",
			func() bool { _, there := m.routing(t, "ingress", "http.8090"); return !there })
		m.write(t, "late-gateway.yaml", emptyGateway+"---\n"+fmt.Sprintf(gatewayRoute, "one"))
		has("it is there again", func(r routing) bool { return !r.divided && len(r.hosts) == 1 })
	}
	m.remove(t, "late-gateway.yaml")
}

// testEmptyRoutes has a gateway open a port that leads nowhere, be given a route, lose it, and close: while it has none
// the port answers at once that there is none.
func testEmptyRoutes(t *testing.T, m *mesh, tr load.Traffic) {
	const port = "10.10.0.2:8090"
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	leads := func(what, to string, want int) {
		t.Helper()
		notHeld(t, tr, func() {
			suite.Eventually(t, what, func() bool {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+port+"/", nil)
				must.Succeed(t, err)
				r.Host = to + ".late.example.com"
				resp, err := client.Do(r)
				if err != nil {
					return false
				}
				resp.Body.Close()
				return resp.StatusCode == want
			})
		})
	}
	for range 2 { // the second time Envoy has seen the names before
		m.write(t, "late-gateway.yaml", emptyGateway)
		leads("a port without a route answers", "one", http.StatusNotFound)
		if r, there := m.routing(t, "ingress", "http.8090"); !there || !r.divided || !slices.Equal(r.hosts, []string{"blackhole:8090"}) {
			t.Errorf("the empty route configuration has %v: %s", r.hosts, r.text)
		}
		m.write(t, "late-ingress.yaml", fmt.Sprintf(gatewayRoute, "one"))
		leads("its first route holds", "one", http.StatusOK)
		m.write(t, "late-ingress.yaml", fmt.Sprintf(gatewayRoute, "two"))
		leads("its host changes", "two", http.StatusOK)
		leads("and the other is gone", "one", http.StatusNotFound)
		m.remove(t, "late-ingress.yaml")
		leads("its last route is gone", "two", http.StatusNotFound)
		m.remove(t, "late-gateway.yaml")
		suite.Eventually(t, "the gateway's route configuration is gone",
			func() bool { _, there := m.routing(t, "ingress", "http.8090"); return !there })
	}
}
