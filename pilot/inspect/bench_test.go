package inspect_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/catalog"
	"github.com/istiod-lite/istiod-lite/pilot/config/file"
	"github.com/istiod-lite/istiod-lite/pilot/ingest"
	"github.com/istiod-lite/istiod-lite/pilot/inspect"
)

// BenchmarkSharedHosts measures what the command analyze does with HTTPRoutes that share 16 hosts, or have 16 hosts of
// a pool, and attach to 8 listeners. The time for each route is what should not grow.
func BenchmarkSharedHosts(b *testing.B) {
	for _, c := range []struct {
		name string
		pool int  // number of hosts of all routes
		same bool // the routes have the same matches
	}{{"different", 16, false}, {"same", 16, true}, {"pool", 160, false}} {
		for _, n := range []int{500, 1000, 2000, 3000} {
			b.Run(fmt.Sprintf("%s/%d", c.name, n), func(b *testing.B) {
				text := sharedHosts(n, c.pool, c.same)
				b.ReportAllocs()
				for b.Loop() {
					o := ingest.Options{
						Logger: slog.New(slog.DiscardHandler), Namespace: "istio-system", Domain: "cluster.local", ClusterID: "Kubernetes",
						Limits: limits.Default(), Advice: true, NoWatch: true,
					}
					var err error
					o.Texts, err = file.Read([]string{"-"}, strings.NewReader(text), o.Limits)
					must.Succeed(b, err)
					i, err := inspect.Read(b.Context(), o, catalog.Features())
					must.Succeed(b, err)
					if i.Objects < n {
						b.Fatalf("%d objects, %v", i.Objects, i.Refusal)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(n), "us/route")
			})
		}
	}
}

// sharedHosts returns a Gateway with 8 listeners, and n HTTPRoutes for all of them with 16 hosts of a pool and three
// rules each.
func sharedHosts(n, pool int, same bool) string {
	var b strings.Builder
	b.WriteString("apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: edge, namespace: a}\nspec:\n" +
		"  gatewayClassName: istio\n  listeners:\n")
	for i := range 8 {
		fmt.Fprintf(&b, "  - {name: l%d, port: %d, protocol: HTTP}\n", i, 8080+i)
	}
	const services = 10
	for i := range services {
		fmt.Fprintf(&b, "---\napiVersion: v1\nkind: Service\nmetadata: {name: s%d, namespace: a}\nspec: {ports: [{name: http, port: 80}]}\n", i)
	}
	for i := range n {
		fmt.Fprintf(&b, "---\napiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: r%d, namespace: a}\nspec:\n"+
			"  parentRefs: [{name: edge}]\n  hostnames:\n", i)
		for j := range 16 {
			fmt.Fprintf(&b, "  - h%d.example.com\n", (7*i+j)%pool)
		}
		path := "/r"
		if !same {
			path = fmt.Sprintf("/r%d", i)
		}
		fmt.Fprintf(&b, `  rules:
  - matches: [{path: {value: %[1]s/a}}]
    backendRefs: [{name: s%[2]d, port: 80}]
  - matches: [{path: {type: Exact, value: %[1]s/b}}]
    backendRefs: [{name: s%[2]d, port: 80, weight: 9}, {name: s%[3]d, port: 80, weight: 1}]
  - matches: [{path: {value: %[1]s/c}, method: GET}]
    filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: x, value: "%[4]d"}]}}]
    backendRefs: [{name: s%[2]d, port: 80}]
`, path, i%services, (i+1)%services, i)
	}
	return b.String()
}
