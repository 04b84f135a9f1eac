package translate_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/deploy/histories"
)

// collisions are objects that compete: for hosts, in odd forms and as wildcards, for subsets, ports and addresses. Some
// are of one age, and some of one name.
func collisions() string {
	yaml := `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: a}
spec: {clusterIP: 10.4.0.1, ports: [{name: http, port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: other, namespace: a}
spec: {clusterIP: 10.4.0.2, ports: [{name: http, port: 80}]}
`
	hosts := []string{"web.example.com", "WEB.example.com", "web.example.com.", `"*.example.com"`, `"*.com"`, `"*"`,
		"xn--mnchen-3ya.example.com"}
	for i, host := range hosts {
		for j, ns := range []string{"a", "b"} {
			meta := fmt.Sprintf(`{name: v%d, namespace: %s, creationTimestamp: "2026-01-0%dT00:00:00Z"}`, i, ns, 1+i%3)
			yaml += fmt.Sprintf("---\napiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {name: g%d, namespace: %s, "+
				"creationTimestamp: \"2026-01-0%dT00:00:00Z\"}\n"+
				"spec: {selector: {istio: gw}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: [%s]}]}\n", i, ns, 1+j, host)
			yaml += fmt.Sprintf("---\napiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: %s\n"+
				"spec: {host: web.a.svc.cluster.local, subsets: [{name: s, labels: {version: v%d%s}}]}\n", meta, i, ns)
			if host == `"*"` {
				continue
			}
			yaml += fmt.Sprintf("---\napiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: %s\nspec:\n  hosts: [%s, "+
				"web.a.svc.cluster.local]\n  gateways: [mesh, a/g%d, b/g%d]\n"+
				"  http:\n  - {match: [{uri: {prefix: /%d%s}}], route: [{destination: {host: web.a.svc.cluster.local, subset: s}}]}\n "+
				" - {route: [{destination: {host: other.a.svc.cluster.local}}], timeout: %ds}\n",
				meta, host, i, i, i, ns, 1+i)
			yaml += fmt.Sprintf("---\napiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: %s\n"+
				"spec: {hosts: [%s, svc.example.com], addresses: [10.5.0.1], resolution: NONE, ports: [{number: %d, name: http, protocol: "+
				"HTTP}]}\n", meta, host, 80+i%2)
		}
	}
	return yaml
}

// Whatever competes for a host, the order in which it came changes nothing of what proxies are sent.
func TestCollisionsHaveOneWinner(t *testing.T) {
	orders := 1000
	switch {
	case histories.Raced:
		orders = 20
	case testing.Short():
		orders = 200
	}
	changes := objects(t, "collisions.yaml", []byte(collisions()))
	sidecar := proxy(t, []byte(`{"id":"sidecar~10.9.1.1~client.c~c.svc.cluster.local","metadata":{"NAMESPACE":"c"}}`))
	gateway := proxy(t, []byte(`{"id":"router~10.9.1.2~gw.a~a.svc.cluster.local","metadata":{"NAMESPACE":"a","LABELS":{"istio":"gw"}}}`))
	seed := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same orders each time
	var first map[string]string
	for order := range orders {
		seed.Shuffle(len(changes), func(i, j int) { changes[i], changes[j] = changes[j], changes[i] })
		translator, s, got := newTranslator(0), newWorld(t, mesh.Default()).apply(changes...), map[string]string{}
		for name, p := range map[string]*node.Proxy{"sidecar": sidecar, "gateway": gateway} {
			for typ, list := range sent(t, translator, s, p) {
				for resource, r := range list {
					got[name+" "+typ+" "+resource] = r.Version
				}
			}
		}
		if first == nil {
			if first = got; len(first) < 20 {
				t.Fatalf("%d resources", len(first))
			}
			continue
		}
		for key := range first {
			if first[key] != got[key] {
				t.Fatalf("order %d: another %s", order, key)
			}
		}
		if len(got) != len(first) {
			t.Fatalf("order %d: %d resources, want %d", order, len(got), len(first))
		}
	}
}
