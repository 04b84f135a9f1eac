//go:build browser

package ui

import (
	"fmt"
	"strings"
)

// shop is a mesh in three namespaces, with routes of a gateway, a canary and a few mistakes.
func shop() map[string]string {
	var b strings.Builder
	host := 0
	service := func(namespace string, names ...string) {
		for _, name := range names {
			host++
			fmt.Fprintf(&b, `---
apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: %[2]s}
spec:
  clusterIP: 10.1.0.%[3]d
  selector: {app: %[1]s}
  ports: [{name: http, port: 80}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s-1, namespace: %[2]s, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
ports: [{name: http, port: 8080, protocol: TCP}]
endpoints:
- {addresses: [10.2.%[3]d.1], conditions: {ready: true}}
- {addresses: [10.2.%[3]d.2], conditions: {ready: true}}
`, name, namespace, host)
		}
	}
	service("shop", "frontend", "catalog", "catalog-canary", "cart", "reviews")
	service("pay", "checkout", "ledger", "fraud")
	service("edge", "ingress")
	return map[string]string{
		"services.yaml": b.String(),
		"routes.yaml":   routes("one"),
		"policies.yaml": `apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: public, namespace: edge}
spec:
  selector: {istio: ingress}
  servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ["shop.example"]}]
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: ledger, namespace: pay}
spec:
  host: ledger
  trafficPolicy: {connectionPool: {tcp: {maxConnections: 100, connectTimeout: 3s}}, outlierDetection: {consecutive5xxErrors: 5}}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: reviews, namespace: shop}
spec:
  hosts: [reviews]
  http: [{route: [{destination: {host: ratings}}]}]
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: ledger, namespace: pay}
spec:
  selector: {matchLabels: {app: ledger}}
  rules: [{from: [{source: {principals: ["cluster.local/ns/pay/sa/checkout"]}}]}]
`,
	}
}

// routes returns the file that changes. value is the value of a header.
func routes(value string) string {
	return `apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: frontend, namespace: shop}
spec:
  hosts: [shop.example]
  gateways: [edge/public]
  http:
  - match: [{uri: {prefix: /pay}}]
    route: [{destination: {host: checkout.pay.svc.cluster.local}}]
  - route: [{destination: {host: frontend}}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: catalog, namespace: shop}
spec:
  hosts: [catalog]
  http:
  - headers: {response: {set: {x-shop: ` + value + `}}}
    route:
    - {destination: {host: catalog}, weight: 90}
    - {destination: {host: catalog-canary}, weight: 10}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: checkout, namespace: pay}
spec:
  hosts: [checkout]
  http:
  - match: [{headers: {x-risk: {exact: high}}}]
    route: [{destination: {host: fraud}}]
  - route: [{destination: {host: checkout}}]
`
}
