package analysis

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/api/mesh"
)

// TestRivals: of objects that compete, each that loses is reported with every object that comes before it, up to a
// bound.
func TestRivals(t *testing.T) {
	const pod = "---\napiVersion: v1\nkind: Pod\nmetadata: {name: %[1]s, namespace: a, labels: {app: %[1]s, all: x}}\n" +
		"spec: {containers: [{name: istio-proxy, image: proxy}]}\nstatus: {podIP: 10.0.0.1}\n"
	many := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, format, fmt.Sprintf("n%02d", i))
		}
		return b.String()
	}
	const (
		sidecar = "---\napiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {name: %s, namespace: a}\n" +
			"spec: {workloadSelector: {labels: {%s}}, egress: [{hosts: [./*]}]}\n"
		rule = "---\napiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: %s, namespace: a}\n" +
			"spec: {host: %s, workloadSelector: {matchLabels: {%s}}, trafficPolicy: {connectionPool: {tcp: {maxConnections: 1}}}}\n"
		virtual = "---\napiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: %s, namespace: a}\n" +
			"spec: {hosts: [%[2]s], gateways: [gw], tls: [{match: [{sniHosts: [%[2]s]}], route: [{destination: {host: web}}]}]}\n"
		http = "---\napiVersion: networking.istio.io/v1\nkind: VirtualService\n" +
			"metadata: {name: %s, namespace: a}\nspec: {hosts: [%s], http: [{route: [{destination: {host: web}}]}]}\n"
	)
	list := func(n int) string { return strings.TrimSuffix(many(n, "%s.example.com, "), ", ") }
	for _, c := range []struct {
		name, objects, code string
		want                []string
	}{
		{
			"Sidecars", many(3, pod) + fmt.Sprintf(sidecar, "a0", "app: n00") + fmt.Sprintf(sidecar, "a1", "app: n01") +
				fmt.Sprintf(sidecar, "b", "all: x") + fmt.Sprintf(sidecar, "c", "all: x") + fmt.Sprintf(sidecar, "d", "app: n02"),
			codeSidecars, []string{"a/b: Sidecar a/a0", "a/b: Sidecar a/a1",
				"a/c: Sidecar a/a0", "a/c: Sidecar a/a1", "a/c: Sidecar a/b", "a/d: Sidecar a/b"},
		},
		{
			"DestinationRules", many(2, pod) + fmt.Sprintf(rule, "a0", "h.example.com", "app: n00") +
				fmt.Sprintf(rule, "a1", "h.example.com", "app: n01") +
				fmt.Sprintf(rule, "a2", "other.example.com", "app: n01") + fmt.Sprintf(rule, "b", "h.example.com", "all: x"),
			codePolicies, []string{"a/b: DestinationRule a/a0", "a/b: DestinationRule a/a1"},
		},
		{
			"routes of connections", fmt.Sprintf(virtual, "a0", "x.example.com") + fmt.Sprintf(virtual, "a1", "y.example.com") +
				fmt.Sprintf(virtual, "b", "x.example.com, y.example.com, z.example.com") + fmt.Sprintf(virtual, "c", "z.example.com"),
			codeUnreachable, []string{"a/b: VirtualService a/a0", "a/b: VirtualService a/a1", "a/c: VirtualService a/b"},
		},
		{"more than are named", many(20, "---\napiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: %[1]s, namespace: a}\n"+
			"spec: {hosts: [%[1]s.example.com], http: [{route: [{destination: {host: web}}]}]}\n") + fmt.Sprintf(http, "z", list(20)),
			codeLimit, []string{"a/z: more than 16"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			conflicts := 0
			for _, d := range Run(decode(t, c.objects), Options{Domain: "cluster.local", Mesh: mesh.Default(), Advice: true}) {
				if d.Code == c.code {
					_, name, _ := strings.Cut(d.Object, " ")
					got = append(got, name+": "+strings.Join(strings.Fields(d.Message)[:len(strings.Fields(c.want[0]))-1], " "))
				}
				if d.Code == codeConflict {
					conflicts++
				}
			}
			slices.Sort(got)
			if !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
			if c.code == codeLimit && conflicts != maxRivals {
				t.Errorf("%d conflicts", conflicts)
			}
		})
	}
}
