package ratelimit

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// The addresses of pods.
const (
	gateway1 = "10.10.0.11:8080"
	gateway2 = "10.10.0.12:8080"
	web      = "10.10.0.13:8080"
	limiter  = "10.10.0.14"
)

// meshYAML has two gateways, a workload with a sidecar, and a pod for the rate limit service, which the sidecar knows
// by a ServiceEntry.
var meshYAML = suite.NamespacesYAML("istio-system", "shop", "limits") +
	suite.GatewayPodYAML("gateway-1", "istio-system", "10.10.0.11", "istio: ingress") +
	suite.GatewayPodYAML("gateway-2", "istio-system", "10.10.0.12", "istio: ingress") +
	suite.PodYAML("web", "shop", "10.10.0.13", `"-http=8080"`, suite.Sidecar) +
	suite.ServiceYAML("web", "shop", "10.96.0.10", "{name: http, port: 80, targetPort: 8080}") +
	suite.PodYAML("ratelimit", "limits", limiter, "", suite.Outside) +
	suite.ServiceYAML("ratelimit", "limits", "10.96.0.11", "{name: grpc-port, port: 8081, targetPort: 8081}") +
	suite.PodYAML("client", "shop", "10.10.0.15", "", suite.Outside) + `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: limits, namespace: shop}
spec:
  hosts: [limits.example]
  location: MESH_EXTERNAL
  resolution: STATIC
  ports: [{number: 8081, name: grpc, protocol: GRPC}]
  endpoints: [{address: ` + limiter + `}]
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: ingress, namespace: istio-system}
spec: {selector: {istio: ingress}, servers: [{port: {number: 8080, name: http, protocol: HTTP}, hosts: ["*"]}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: shop}
spec:
  hosts: [web.example]
  gateways: [istio-system/ingress]
  http:
  - name: orders
    match: [{uri: {prefix: /orders}}]
    route: [{destination: {host: web.shop.svc.cluster.local}}]
  - route: [{destination: {host: web.shop.svc.cluster.local}}]
`

// filtersYAML limits requests at the gateways by their path, and on one route by their tenant, and at the sidecar by
// their caller.
const filtersYAML = `apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: limits, namespace: istio-system}
spec:
  workloadSelector: {labels: {istio: ingress}}
  configPatches:
  - applyTo: HTTP_FILTER
    match:
      context: GATEWAY
      listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager, subFilter: {name: envoy.filters.http.router}}}}
    patch:
      operation: INSERT_BEFORE
      value:
        name: envoy.filters.http.ratelimit
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
          domain: gateway
          failure_mode_deny: DENY_AT_GATEWAYS
          timeout: 10s
          enable_x_ratelimit_headers: DRAFT_VERSION_03
          rate_limit_service:
            grpc_service:
              envoy_grpc: {cluster_name: outbound|8081||ratelimit.limits.svc.cluster.local, authority: ratelimit.limits.svc.cluster.local}
            transport_api_version: V3
  - applyTo: VIRTUAL_HOST
    match: {context: GATEWAY, routeConfiguration: {vhost: {name: "", route: {action: ANY}}}}
    patch:
      operation: MERGE
      value: {rate_limits: [{actions: [{request_headers: {header_name: ":path", descriptor_key: PATH}}]}]}
  - applyTo: HTTP_ROUTE
    match: {context: GATEWAY, routeConfiguration: {vhost: {name: "web.example:8080", route: {name: orders}}}}
    patch:
      operation: MERGE
      value: {route: {rate_limits: [{actions: [{request_headers: {header_name: x-tenant, descriptor_key: tenant}}]}]}}
---
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: limits, namespace: shop}
spec:
  workloadSelector: {labels: {app: web}}
  configPatches:
  - applyTo: HTTP_FILTER
    match:
      context: SIDECAR_INBOUND
      listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager, subFilter: {name: envoy.filters.http.router}}}}
    patch:
      operation: INSERT_BEFORE
      value:
        name: envoy.filters.http.ratelimit
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
          domain: web
          failure_mode_deny: DENY_AT_SIDECARS
          timeout: 10s
          rate_limit_service:
            grpc_service: {envoy_grpc: {cluster_name: outbound|8081||limits.example}}
            transport_api_version: V3
  - applyTo: VIRTUAL_HOST
    match: {context: SIDECAR_INBOUND, routeConfiguration: {vhost: {name: "inbound|http|80"}}}
    patch:
      operation: MERGE
      value: {rate_limits: [{actions: [{request_headers: {header_name: x-caller, descriptor_key: caller}}]}]}
`

// filters returns filtersYAML with values of failure_mode_deny.
func filters(gateways, sidecars string) string {
	return strings.NewReplacer("DENY_AT_GATEWAYS", gateways, "DENY_AT_SIDECARS", sidecars).Replace(filtersYAML)
}

// limits are the files of the rate limit service.
var limits = map[string]string{
	"gateway.yaml": `domain: gateway
descriptors:
- {key: PATH, value: /cart, rate_limit: {unit: day, requests_per_unit: 3}}
- {key: PATH, rate_limit: {unit: day, requests_per_unit: 100}}
- {key: tenant, value: gold, rate_limit: {unit: day, requests_per_unit: 4}}
- {key: tenant, rate_limit: {unit: day, requests_per_unit: 2}}
`,
	"web.yaml": `domain: web
descriptors:
- {key: caller, value: batch, rate_limit: {unit: day, requests_per_unit: 1}}
`,
}

// limitedMesh is a mesh whose proxies ask a rate limit service.
type limitedMesh struct {
	*suite.Mesh
	t       *testing.T
	client  *http.Client
	service *suite.Program
}

// start starts the mesh and the rate limit service, and returns when the proxies have the filters.
func start(t *testing.T, filters string) *limitedMesh {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	m := &limitedMesh{t: t, Mesh: suite.StartMesh(ctx, t, suite.MeshOptions{
		Network: network, CA: true, Files: map[string]string{"mesh.yaml": meshYAML, "filters.yaml": filters},
	})}
	m.client = suite.Client(m.Pod("client"), map[string]string{"web.example:80": gateway1, "web.example:8080": gateway2, "web:80": web})
	for name, text := range limits {
		path := filepath.Join(filepath.Dir(m.Dir), "limits", "config", name)
		must.Succeed(t, os.MkdirAll(filepath.Dir(path), 0o755))
		suite.Write(t, path, text)
	}
	m.Run(t, "ratelimit", "miniredis", nil, "127.0.0.1:6379")
	m.startService()
	return m
}

// startService starts the rate limit service with the settings of Istio's sample, and waits until it answers.
func (m *limitedMesh) startService() {
	m.t.Helper()
	m.service = m.Run(m.t, "ratelimit", "ratelimit", []string{
		"REDIS_SOCKET_TYPE=tcp", "REDIS_URL=127.0.0.1:6379", "USE_STATSD=false", "RUNTIME_ROOT=" + filepath.Dir(m.Dir),
		"RUNTIME_SUBDIRECTORY=limits", "RUNTIME_APPDIRECTORY=config", "RUNTIME_WATCH_ROOT=false", "RUNTIME_IGNOREDOTFILES=true",
	})
	suite.Eventually(m.t, "the rate limit service answers", func() bool {
		resp, err := m.client.Get("http://" + limiter + ":8080/healthcheck")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

// get sends a request with headers, which are pairs of a name and a value, and returns the status and the headers of
// the response.
func (m *limitedMesh) get(url string, headers ...string) (int, http.Header) {
	m.t.Helper()
	req, err := http.NewRequestWithContext(m.t.Context(), http.MethodGet, url, nil)
	must.Succeed(m.t, err)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	req.Host = "web.example"
	resp, err := m.client.Do(req)
	must.Succeed(m.t, err)
	defer resp.Body.Close()
	return resp.StatusCode, resp.Header
}
