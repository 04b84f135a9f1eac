package translate_test

import (
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/node"
)

// anyOnPort80 is one more document of a world: a service that has all proxies ask for the routes of port 80.
const anyOnPort80 = `---
apiVersion: v1
kind: Service
metadata: {name: any, namespace: b}
spec: {clusterIP: 10.0.0.7, ports: [{name: http, port: 80}]}
`

// TestChangesMatchFreshWorld applies a change to a world in each case. A long-lived Translator must then return what a
// fresh one returns, with the change and without it again.
func TestChangesMatchFreshWorld(t *testing.T) {
	for name, c := range map[string][2]string{
		"the region of a Node, by which a subset and a policy select": {`
apiVersion: v1
kind: Pod
metadata: {name: x, namespace: a, labels: {app: h}}
spec: {nodeName: node-1, containers: [{name: c}]}
status: {podIP: 10.1.0.1, phase: Running, conditions: [{type: Ready, status: "True"}]}
---
apiVersion: v1
kind: Service
metadata: {name: h, namespace: a}
spec: {clusterIP: 10.0.0.1, selector: {app: h}, ports: [{name: http, port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: h, namespace: a, labels: {kubernetes.io/service-name: h}}
addressType: IPv4
ports: [{name: http, port: 80}]
endpoints: [{addresses: [10.1.0.1], targetRef: {kind: Pod, name: x, namespace: a}}]
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: h, namespace: a}
spec: {host: h, subsets: [{name: near, labels: {topology.kubernetes.io/region: r1}}]}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: near, namespace: a}
spec: {selector: {matchLabels: {topology.kubernetes.io/region: r1}}}
`, `
apiVersion: v1
kind: Node
metadata: {name: node-1, labels: {topology.kubernetes.io/region: r1}}
`},
		"a Sidecar's HTTP port over a service that speaks something else": {`
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: default, namespace: a}
spec: {egress: [{port: {number: 9080, protocol: HTTP, name: h}, hosts: ["*/*"]}, {hosts: ["*/*"]}]}
`, `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: a}
spec: {clusterIP: 10.0.0.1, ports: [{port: 9080}]}
`},
		"a name that only a VirtualService imports": {`
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: default, namespace: a}
spec: {egress: [{hosts: ["b/*"]}]}
---
apiVersion: v1
kind: Service
metadata: {name: h, namespace: b}
spec: {clusterIP: 10.0.0.1, ports: [{name: http, port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: short, namespace: c}
spec: {type: ExternalName, externalName: h.b.svc.cluster.local, ports: [{name: http, port: 80}]}
`, `
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: v, namespace: b}
spec: {hosts: [foo.example.com], http: [{route: [{destination: {host: short.c.svc.cluster.local}}]}]}
`},
		"the same, of TLS": {`
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: default, namespace: a}
spec: {egress: [{hosts: ["b/*"]}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: h, namespace: b}
spec: {hosts: [h.example.com], resolution: DNS, ports: [{name: tls, number: 443, protocol: TLS}]}
---
apiVersion: v1
kind: Service
metadata: {name: short, namespace: c}
spec: {type: ExternalName, externalName: h.example.com, ports: [{name: tls, port: 443}]}
`, `
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: v, namespace: b}
spec: {hosts: [foo.example.com], http: [{route: [{destination: {host: short.c.svc.cluster.local}}]}]}
`},
		"a route to a name whose service another VirtualService imports": {`
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: default, namespace: a}
spec: {egress: [{hosts: ["b/*"]}]}
---
apiVersion: v1
kind: Service
metadata: {name: any, namespace: b}
spec: {clusterIP: 10.0.0.7, ports: [{name: http, port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: short, namespace: b}
spec: {type: ExternalName, externalName: h.c.svc.cluster.local, ports: [{name: http, port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: h, namespace: c}
spec: {clusterIP: 10.0.0.1, ports: [{name: http, port: 80}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: to-short, namespace: b}
spec: {hosts: [one.example.com], http: [{route: [{destination: {host: short.b.svc.cluster.local}}]}]}
`, `
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: to-h, namespace: b}
spec: {hosts: [two.example.com], http: [{route: [{destination: {host: h.c.svc.cluster.local}}]}]}
`},
		"one host in two namespaces, imported by VirtualServices": {`
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: default, namespace: a}
spec: {egress: [{hosts: ["*/*.example.com"]}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: any, namespace: b}
spec: {hosts: [any.example.com], resolution: DNS, ports: [{name: http, number: 80, protocol: HTTP}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: h, namespace: b, creationTimestamp: "2020-01-01T00:00:00Z"}
spec: {hosts: [h.example.org], resolution: DNS, ports: [{name: http, number: 80, protocol: HTTP}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: h, namespace: c, creationTimestamp: "2021-01-01T00:00:00Z"}
spec: {hosts: [h.example.org], resolution: DNS, ports: [{name: http, number: 80, protocol: HTTP}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: h, namespace: c}
spec: {host: h.example.org, trafficPolicy: {loadBalancer: {consistentHash: {useSourceIp: true}}}}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: later, namespace: b, creationTimestamp: "2021-01-01T00:00:00Z"}
spec: {hosts: [one.example.com], http: [{route: [{destination: {host: h.example.org}}]}]}
`, `
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: first, namespace: c, creationTimestamp: "2020-01-01T00:00:00Z"}
spec: {hosts: [two.example.com], http: [{route: [{destination: {host: h.example.org}}]}]}
`},
		"a service that takes a pattern's virtual host away, which ends within a label": {`
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: v, namespace: a}
spec: {hosts: ["*-x.example.com"], http: [{timeout: 5s, route: [{destination: {host: other.example.com}}]}]}
` + anyOnPort80, `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: x, namespace: b}
spec: {hosts: [y-x.example.com], resolution: DNS, ports: [{name: http, number: 80, protocol: HTTP}]}
`},
		"a longer pattern that ends within a label": {`
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: v, namespace: a}
spec: {hosts: ["*x.example.com", "*.example.com", also.example.com],
  http: [{timeout: 5s, route: [{destination: {host: other.example.com}}]}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: x, namespace: b}
spec: {hosts: [y-x.example.com], resolution: DNS, ports: [{name: http, number: 8080, protocol: HTTP}]}
` + anyOnPort80, `
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: w, namespace: b}
spec: {hosts: ["*-x.example.com"], http: [{timeout: 6s, route: [{destination: {host: other.example.com}}]}]}
`},
		"the only service behind a Sidecar's HTTP proxy": {`
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: default, namespace: a}
spec: {egress: [{port: {number: 3128, protocol: HTTP_PROXY, name: p}, bind: 127.0.0.1, hosts: ["b/*"]}]}
`, `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: b}
spec: {clusterIP: 10.0.0.1, ports: [{name: http, port: 80}, {name: http-b, port: 9080}]}
`},
	} {
		t.Run(name, func(t *testing.T) {
			refs := &references{seen: map[string][]string{}}
			before, change := objects(t, "world.yaml", []byte(c[0])), objects(t, "change.yaml", []byte(c[1]))
			w, tr := newWorld(t, mesh.Default()), newTranslator(1<<20)
			p := proxyOf("a")
			s := w.apply(before...)
			tr.Prepare(s)
			was := refs.config(t, tr, s, p)
			s = w.apply(change...)
			tr.Prepare(s)
			got := refs.config(t, tr, s, p)
			once := newWorld(t, mesh.Default()).apply(append(before, change...)...)
			if d := differences(refs.config(t, newTranslator(0), once, p), got); d != nil {
				t.Errorf("with the change, made at once (before) and followed (after): %s", strings.Join(d, ", "))
			}
			s = w.apply(deletions(change)...)
			tr.Prepare(s)
			if d := differences(was, refs.config(t, tr, s, p)); d != nil {
				t.Errorf("without it again: %s", strings.Join(d, ", "))
			}
			// A Translator that starts with the change and sees it deleted.
			w, tr = newWorld(t, mesh.Default()), newTranslator(1<<20)
			s = w.apply(append(before, change...)...)
			tr.Prepare(s)
			refs.config(t, tr, s, p)
			s = w.apply(deletions(change)...)
			tr.Prepare(s)
			if d := differences(was, refs.config(t, tr, s, p)); d != nil {
				t.Errorf("begun with it, then without: %s", strings.Join(d, ", "))
			}
		})
	}
}

// proxyOf returns a workload of a namespace that no service selects.
func proxyOf(ns string) *node.Proxy {
	p := *testProxies()["web"]
	p.Name, p.Namespace, p.IPs = "x-0", ns, []string{"10.9.0.1"}
	p.ID, p.Domain = "x-0."+ns, ns+".svc.cluster.local"
	return &p
}
