package translate_test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/deploy/histories"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/pilot/translate"
)

// largeObjects returns writers of objects of n entries, or of n objects that count as one, in two states.
func largeObjects() map[string]func(n, state int) string {
	const virtual = "---\napiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: big, namespace: n0}\nspec:\n"
	const rule = "---\napiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: big%d, namespace: n0}\nspec:\n  host: s0\n"
	list := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	to := func(state int) string {
		return fmt.Sprintf("  http: [{timeout: %ds, route: [{destination: {host: s0}}]}]\n", state+1)
	}
	all := map[string]func(n, state int) string{
		"VirtualServiceHosts": func(n, state int) string {
			return virtual + "  hosts:\n" + list(n, "  - h%d.example.com\n") + to(state)
		},
		"VirtualServiceHostsWithServices": func(n, state int) string {
			return virtual + "  hosts:\n" + list(n, "  - h%d.example.com\n") + "  - s3.n3.svc.cluster.local\n" + to(state)
		},
		"VirtualServiceHostsOfGateway": func(n, state int) string {
			return virtual + "  gateways: [istio-system/gw]\n  hosts:\n" + list(n, "  - h%d.example.com\n") + to(state)
		},
		"VirtualServicePatterns": func(n, state int) string {
			return virtual + "  gateways: [mesh, istio-system/gw]\n  hosts:\n" + list(n, "  - '*-h%d.example.com'\n") + to(state)
		},
		"VirtualServiceDestinations": func(n, state int) string {
			return virtual + "  gateways: [mesh, istio-system/gw]\n  hosts: [s0.n0.svc.cluster.local]\n  http:\n" +
				list(n, "  - {match: [{uri: {exact: /%[1]d}, sourceLabels: {app: s%[1]d}}, {uri: {prefix: /p%[1]d}}], route: [{destination: "+
					"{host: d%[1]d.example.com}}]}\n") +
				fmt.Sprintf("  - {timeout: %ds, route: [{destination: {host: s0}}]}\n", state+1)
		},
		"VirtualServiceSNIHosts": func(n, state int) string {
			return virtual + "  hosts:\n" + list(n, "  - h%d.example.com\n") + "  tls:\n  - match:\n    - sniHosts:\n" +
				list(n, "      - h%d.example.com\n") + fmt.Sprintf("    route: [{destination: {host: s%d}}]\n", state)
		},
		"DestinationRuleSubsets": func(n, state int) string {
			return fmt.Sprintf(rule, 0) + fmt.Sprintf("  trafficPolicy: {connectionPool: {tcp: {maxConnections: %d}}}\n  subsets:\n",
				state+1) + list(n, "  - {name: v%[1]d, labels: {version: v%[1]d}}\n")
		},
		"DestinationRulesOfOneWorkload": func(n, state int) string {
			var b strings.Builder
			for i := range n {
				fmt.Fprintf(&b, rule, i)
				fmt.Fprintf(&b, "  workloadSelector: {matchLabels: {app: s%[1]d}}\n  trafficPolicy: {connectionPool: {tcp: {maxConnections: "+
					"%[2]d}}}\n", n-1-i, state+1)
			}
			return b.String()
		},
		"GatewayPorts": func(n, state int) string {
			return "---\napiVersion: networking.istio.io/v1\nkind: Gateway\n" +
				"metadata: {name: big, namespace: istio-system}\n" +
				"spec:\n  servers:\n" + list(n, fmt.Sprintf("  - {port: {number: 1%%04[1]d, name: http-%%[1]d, protocol: HTTP}, hosts: "+
				"[h%d.example.com]}\n", state))
		},
		"GatewayServers": func(n, state int) (all string) {
			for _, write := range gatewayServers() {
				all += write(n/4, state)
			}
			return all
		},
		"DestinationRulesOfOneHost": func(n, state int) string {
			var b strings.Builder
			for i := range n {
				fmt.Fprintf(&b, rule, i)
				fmt.Fprintf(&b, "  subsets: [{name: v%[1]d, labels: {version: v%[1]d}, trafficPolicy: {connectionPool: {tcp: {maxConnections: "+
					"%[2]d}}}}]\n", i, state+1)
			}
			return b.String()
		},
	}
	maps.Copy(all, largeEntries())
	return all
}

const smallWorld = `---
apiVersion: v1
kind: Service
metadata: {name: other, namespace: n2}
spec: {clusterIP: 10.7.0.1, ports: [{name: http, port: 8081}]}
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: default, namespace: n1}
spec: {egress: [{hosts: ["n2/*", "n0/*"]}]}
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: gw, namespace: istio-system}
spec: {servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ["*"]}]}
`

// translateAll has three proxies ask for everything that they are sent: a sidecar, one with a Sidecar, and a gateway.
func translateAll(t tb, tr *translate.Translator, s *snapshot.Snapshot, table *envoy.NameInterner) {
	tr.Prepare(s)
	in := func(ns string) *node.Proxy {
		p := *testProxies()["web"]
		p.Name, p.Namespace, p.Domain, p.IPs = "s"+ns[1:]+"-0", ns, ns+".svc.cluster.local", []string{"10.0." + ns[1:] + ".2"}
		return &p
	}
	for _, p := range []*node.Proxy{in("n0"), in("n1"), testProxies()["gateway"]} {
		c := tr.ResolveCohort(s, p)
		var clusters []string
		for r := range tr.Wildcard(s, c, envoy.ClusterType).All {
			clusters = append(clusters, r.Name)
		}
		routes := []string{"80", "8081", "http.80"}
		for r := range tr.Wildcard(s, c, envoy.ListenerType).All {
			routes = append(routes, routeNames(t, decode(t, r))...)
		}
		for url, names := range map[string][]string{envoy.EndpointType: clusters, envoy.RouteType: routes} {
			if _, err := tr.Get(s, c, url, table.Intern(names)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// linearWork is the environment variable that holds the work of TestLinear: an object and its number of entries.
const linearWork = "LINEAR_WORK"

// TestLinear checks that the cost of an object is linear in its size, from YAML to Sets: when it is added, changed and
// deleted, when something beside it changes, and when everything is generated again. The cost is the number of
// statements that run, counted by the coverage counters of a program that is built for this. The count is nearly the
// same in each run, whatever else the machine does. It needs no hook in the code under test, and finds a loop that
// allocates nothing. The profile shows where the statements are.
func TestLinear(t *testing.T) {
	if work := os.Getenv(linearWork); work != "" {
		name, n := "", 0
		if _, err := fmt.Sscan(work, &name, &n); err != nil {
			t.Fatal(err)
		}
		runLargeObject(t, func(state int) string { return largeObjects()[name](n, state) })
		return
	}
	if testing.Short() {
		t.Skip("make test-long runs it")
	}
	histories.NoRace(t)
	t.Parallel()
	program := filepath.Join(t.TempDir(), "linear.test")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-covermode=count",
		"-coverpkg=../../api/...,../../galley/...,../../pilot/...,../../registry/...", "-o", program, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for name := range largeObjects() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const size, most = 1000, 2.5
			one, two := statements(t, program, name, size), statements(t, program, name, 2*size)
			all := func(blocks map[string]int) (sum int) {
				for _, n := range blocks {
					sum += n
				}
				return sum
			}
			if of := all(one); float64(all(two)) <= most*float64(of) {
				return
			}
			worst := slices.SortedFunc(maps.Keys(two), func(a, b string) int { return two[b] - one[b] - two[a] + one[a] })
			t.Errorf("with %d entries %d statements run, with %d entries %d; most of the growth is in", size, all(one), 2*size, all(two))
			for _, block := range worst[:10] {
				t.Errorf("%12d, then %12d: %s", one[block], two[block], block)
			}
		})
	}
}

// statements returns how many statements of each block run for an object of n entries.
func statements(t *testing.T, program, name string, n int) map[string]int {
	t.Helper()
	profile := filepath.Join(t.TempDir(), "profile")
	run := exec.CommandContext(t.Context(), program, "-test.run=^TestLinear$", "-test.coverprofile="+profile)
	run.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d", linearWork, name, n))
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	blocks := map[string]int{}
	for line := range strings.Lines(string(read(t, profile))) {
		block, statements, count := "", 0, 0
		if n, _ := fmt.Sscan(line, &block, &statements, &count); n == 3 && count > 0 {
			blocks[block] = statements * count
		}
	}
	if len(blocks) < 100 {
		t.Fatalf("the profile has %d blocks that ran", len(blocks))
	}
	return blocks
}

// runLargeObject adds, changes and removes large objects in a small mesh, and translates it each time. write returns
// the objects of a state.
func runLargeObject(t *testing.T, write func(state int) string) {
	var table envoy.NameInterner
	w, tr := newWorld(t, mesh.Default()), newTranslator(64<<20)
	translateAll(t, tr, w.apply(append(services(t, 12), objects(t, "world.yaml", []byte(smallWorld))...)...), &table)
	large := func(state int) []kinds.Change { return documents(t, write(state)) }
	gone := func(list []kinds.Change) []kinds.Change {
		list = slices.Clone(list)
		for i := range list {
			list[i].Object = nil
		}
		return list
	}
	beside := services(t, 1)[:1]
	for _, changes := range [][]kinds.Change{large(0), large(1), gone(beside), beside} {
		translateAll(t, tr, w.apply(changes...), &table)
	}
	translateAll(t, newTranslator(64<<20), w.apply(), &table)
	translateAll(t, tr, w.apply(gone(large(1))...), &table)
}

// documents returns the objects of a YAML text, which may be more than one file may have.
func documents(t tb, text string) (list []kinds.Change) {
	for doc := range strings.SplitSeq(text, "---\n") {
		if doc != "" {
			list = append(list, objects(t, "large.yaml", []byte(doc))...)
		}
	}
	return list
}
