package externaldns

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/compat"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/binaries"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster/node"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster/node/install"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// program runs external-dns with the rights that its documentation names for these sources. PROVIDER is the URL of its
// provider.
const program = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: external-dns, namespace: external-dns}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: external-dns}
rules:
- apiGroups: [""]
  resources: [services, pods, nodes, namespaces]
  verbs: [get, watch, list]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [get, watch, list]
- apiGroups: [networking.k8s.io]
  resources: [ingresses]
  verbs: [get, watch, list]
- apiGroups: [networking.istio.io]
  resources: [gateways, virtualservices]
  verbs: [get, watch, list]
- apiGroups: [gateway.networking.k8s.io]
  resources: [gateways, httproutes]
  verbs: [get, watch, list]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: external-dns}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: external-dns}
subjects:
- {kind: ServiceAccount, name: external-dns, namespace: external-dns}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: external-dns, namespace: external-dns}
spec:
  selector:
    matchLabels: {app: external-dns}
  template:
    metadata:
      labels: {app: external-dns}
    spec:
      serviceAccountName: external-dns
      containers:
      - name: external-dns
        image: registry.k8s.io/external-dns/external-dns:v0.19.0
        args:
        - --source=istio-gateway
        - --source=istio-virtualservice
        - --source=gateway-httproute
        - --provider=webhook
        - --webhook-provider-url=PROVIDER
        - --registry=noop
        - --interval=2s
        readinessProbe:
          httpGet: {path: /healthz, port: 7979}
`

// mesh has a gateway of each API, with hosts of their own and of routes.
const mesh = `
apiVersion: v1
kind: Namespace
metadata:
  name: shop
  labels: {istio-injection: enabled}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: server, namespace: shop}
spec:
  selector:
    matchLabels: {app: server}
  template:
    metadata:
      labels: {app: server}
    spec:
      containers:
      - {name: server, image: example.com/echo-advanced:1}
---
apiVersion: v1
kind: Service
metadata: {name: server, namespace: shop}
spec:
  selector: {app: server}
  ports:
  - {name: http, port: 80, targetPort: 8080}
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: web, namespace: istio-ingress}
spec:
  selector: {istio: ingress}
  servers:
  - port: {number: 80, name: http, protocol: HTTP}
    hosts: [www.example.com, "shop/*.shop.example.com"]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: shop}
spec:
  hosts: [www.example.com, cart.shop.example.com]
  gateways: [istio-ingress/web]
  http:
  - route:
    - destination: {host: server}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: api, namespace: istio-ingress}
spec:
  gatewayClassName: istio
  listeners:
  - name: http
    protocol: HTTP
    port: 80
    hostname: "*.api.example.com"
    allowedRoutes:
      namespaces: {from: All}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: refused, namespace: shop}
spec:
  hostnames: [refused.example.com]
  parentRefs:
  - {name: api, namespace: istio-ingress}
  rules:
  - backendRefs:
    - {name: server, port: 80}
---
` + route

// route is an HTTPRoute whose host the test changes.
const route = `
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: api, namespace: shop}
spec:
  hostnames: [v1.api.example.com]
  parentRefs:
  - {name: api, namespace: istio-ingress}
  rules:
  - backendRefs:
    - {name: server, port: 80}
`

// TestRecords compares all records after each change.
func TestRecords(t *testing.T) {
	w := install.New(t, install.Options{
		Network: network, Definitions: []string{filepath.Join(os.Getenv(install.DirVar), "gateway-api")},
		Image: func(name string) (node.Image, bool) {
			return install.Image("external-dns", "external-dns"), strings.Contains(name, "/external-dns:")
		},
	})
	var p provider
	w.Ready("istio-system", "istiod")
	w.Write(w.File("istio-ingress.yaml"))
	w.Write(mesh)
	w.Write(strings.ReplaceAll(program, "PROVIDER", p.serve(t, network.Gateway().String())))
	w.Ready("external-dns", "external-dns")
	ingress, api := w.LoadBalancer("istio-ingress", "istio-ingress"), w.LoadBalancer("istio-ingress", "api-istio")
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the last records: %q", p.all())
		}
	})
	records := func(what string, want ...string) {
		t.Helper()
		slices.Sort(want)
		suite.Eventually(t, what, func() bool { return slices.Equal(p.all(), want) })
	}
	web := []string{"*.shop.example.com A " + ingress, "cart.shop.example.com A " + ingress, "www.example.com A " + ingress}
	records("records of Gateways and routes", append(web, "v1.api.example.com A "+api)...)
	for _, name := range []string{"www.example.com", "cart.shop.example.com", "v1.api.example.com"} {
		suite.Eventually(t, "the workload answers as "+name, func() bool { return get(t, p.lookup(name), name) == http.StatusOK })
	}
	w.Write(strings.ReplaceAll(route, "v1.api", "v2.api"))
	records("a record of the next host", append(web, "v2.api.example.com A "+api)...)
	must.Succeed(t, w.Delete(t.Context(), []byte(route)))
	records("no record of a deleted route", web...)
	must.Succeed(t, compat.CheckProject("external-dns", binaries.Version("external-dns"),
		"sources istio-gateway, istio-virtualservice and gateway-httproute, with a provider by webhook", "works"))
}

// get sends a request to an address, and returns the status of the answer, or 0.
func get(t *testing.T, addr, host string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+net.JoinHostPort(addr, "80"), nil)
	must.Succeed(t, err)
	req.Host = host
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}
