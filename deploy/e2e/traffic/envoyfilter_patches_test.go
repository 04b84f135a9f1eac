package traffic

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
)

// patchesYAML has patches of all kinds. The names of the broken ones begin with "broken".
const patchesYAML = `apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: server, namespace: a}
spec:
  workloadSelector: {labels: {app: echo}}
  configPatches:
  - applyTo: HTTP_FILTER
    match: {context: SIDECAR_INBOUND, listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager,
        subFilter: {name: envoy.filters.http.router}}}}}
    patch:
      operation: INSERT_BEFORE
      value:
        name: mark
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua
          default_source_code: {inline_string: "function envoy_on_response(h) h:headers():add('x-server-mark', 'MARK') end"}
  - applyTo: HTTP_FILTER
    match: {context: SIDECAR_INBOUND, listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager,
        subFilter: {name: envoy.filters.http.router}}}}}
    patch: {operation: INSERT_AFTER, value: {name: broken-behind-the-router,
        typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua}}}
  - applyTo: NETWORK_FILTER
    match: {context: SIDECAR_INBOUND, listener: {portNumber: 9090, filterChain: {filter: {name: envoy.filters.network.tcp_proxy}}}}
    patch: {operation: REPLACE, value: {name: answer,
        typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.network.direct_response.v3.Config,
            response: {inline_string: "patched\n"}}}}
---
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: client, namespace: a}
spec:
  workloadSelector: {labels: {app: client}}
  configPatches:
  - applyTo: HTTP_FILTER
    match: {context: SIDECAR_OUTBOUND, listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager}}}}
    patch: {operation: INSERT_FIRST, value: {name: broken-type,
        typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.nothing.v3.Nothing, field: 1}}}
  - applyTo: HTTP_ROUTE
    match: {context: SIDECAR_OUTBOUND, routeConfiguration: {vhost: {name: "slow.a.svc.cluster.local:80"}}}
    patch: {operation: MERGE, value: {route: {timeout: 0.1s}}}
  - applyTo: HTTP_FILTER
    match: {context: SIDECAR_OUTBOUND, listener: {portNumber: 81,
        filterChain: {filter: {name: envoy.filters.network.http_connection_manager}}}}
    patch:
      operation: INSERT_FIRST
      value:
        name: limit
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit
          stat_prefix: limit
          token_bucket: {max_tokens: 1, tokens_per_fill: 1, fill_interval: 86400s}
          filter_enabled: {default_value: {numerator: 100}}
          filter_enforced: {default_value: {numerator: 100}}
  - applyTo: CLUSTER
    match: {context: SIDECAR_OUTBOUND}
    patch:
      operation: ADD
      value:
        name: mine
        type: STATIC
        connect_timeout: 10s
        load_assignment: {cluster_name: mine, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 10.10.0.15,
            port_value: 8000}}}}]}]}
  - applyTo: HTTP_ROUTE
    match: {context: SIDECAR_OUTBOUND, routeConfiguration: {vhost: {name: "echo.a.svc.cluster.local:80"}}}
    patch: {operation: INSERT_FIRST, value: {name: mine, match: {path: /mine}, route: {cluster: mine}}}
  - applyTo: HTTP_FILTER
    match: {context: SIDECAR_OUTBOUND, listener: {portNumber: 80,
        filterChain: {filter: {name: envoy.filters.network.http_connection_manager, subFilter: {name: envoy.filters.http.fault}}}}}
    patch: {operation: REMOVE}
  - applyTo: CLUSTER
    match: {context: SIDECAR_OUTBOUND, cluster: {service: echo.a.svc.cluster.local}}
    patch: {operation: MERGE, value: {connect_timeout: -1s}}
  - applyTo: CLUSTER
    match: {context: SIDECAR_OUTBOUND, cluster: {service: echo.a.svc.cluster.local}}
    patch: {operation: MERGE, value: {alt_stat_name: patched}}
  - applyTo: CLUSTER
    match: {context: SIDECAR_OUTBOUND, cluster: {service: nobody.a.svc.cluster.local}}
    patch: {operation: MERGE, value: {alt_stat_name: patched}}
---
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: gateway, namespace: istio-system}
spec:
  configPatches:
  - applyTo: HTTP_FILTER
    match: {context: GATEWAY, listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager}}}}
    patch:
      operation: INSERT_FIRST
      value:
        name: mark
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua
          default_source_code: {inline_string: "function envoy_on_response(h) h:headers():add('x-gateway-mark', 'here') end"}
  - applyTo: LISTENER_FILTER
    match: {context: GATEWAY}
    patch:
      operation: INSERT_FIRST
      value:
        name: envoy.filters.listener.proxy_protocol
        typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.listener.proxy_protocol.v3.ProxyProtocol,
            allow_requests_without_proxy_protocol: true}
`

// brokenPatches are the patches of patchesYAML that are left out or have no effect, with the codes of their findings.
func brokenPatches() map[string]string {
	return map[string]string{
		"EnvoyFilter a/server spec.configPatches[1]":             "PatchLeftOut",
		"EnvoyFilter a/client spec.configPatches[0].patch.value": "PatchLeftOut",
		"EnvoyFilter a/client spec.configPatches[6]":             "PatchLeftOut",
		"EnvoyFilter a/client spec.configPatches[8]":             "PatchNoMatch",
	}
}

// TestPatches: patches change sidecars and gateways, for each protocol. A patch that cannot be applied or matches
// nothing does not affect other patches of its object, is rejected by no Envoy, and is a finding with its place. An
// edit reaches only the proxies that the object selects.
func TestPatches(t *testing.T) {
	for name, o := range map[string]suite.MeshOptions{
		"Delta":                        {},
		"StateOfTheWorld, oldestEnvoy": {StateOfTheWorld: true, Envoy: suite.OldestEnvoyVar},
	} {
		t.Run(name, func(t *testing.T) { testPatches(t, startEnvoyFilter(t, o)) })
	}
}

func testPatches(t *testing.T, m mesh) {
	get := func(r request) response {
		a, _ := m.do(r)
		return a
	}
	line := func() string {
		text, _ := m.line("client", echoAt(90))
		return text
	}
	if a := get(request{from: "client", address: echoAt(80), host: "echo.a", path: "/teapot"}); a.status != http.StatusTeapot {
		t.Fatalf("without patches: %v", a)
	}
	m.write("patches.yaml", strings.Replace(patchesYAML, "MARK", "first", 1))
	suite.Eventually(t, "a filter at the server's sidecar", func() bool {
		return get(request{from: "client", address: echoAt(80), host: "echo.a", path: "/"}).header.Get("X-Server-Mark") == "first"
	})
	suite.Eventually(t, "a network filter at the server's sidecar", func() bool { return line() == "patched" })
	suite.Eventually(t, "a filter of the root namespace at the gateway", func() bool {
		a := get(request{from: "slow", address: envoyFilterGatewayPod, host: "x", path: "/"})
		return a.header.Get("X-Gateway-Mark") == "here" && a.header.Get("X-Server-Mark") == "first" && a.status == http.StatusOK
	})
	suite.Eventually(t, "a listener filter at the gateway", func() bool {
		a := get(request{from: "slow", address: envoyFilterGatewayPod, host: "x", path: "/slow",
			before: "PROXY TCP4 192.0.2.1 10.10.0.14 1000 8080\r\n"})
		return strings.Contains(a.header.Get("X-From"), "192.0.2.1")
	})
	suite.Eventually(t, "the timeout of a route", func() bool {
		return get(request{from: "client", address: slowService + ":80", host: "slow.a", path: "/hang"}).status == http.StatusGatewayTimeout
	})
	suite.Eventually(t, "a limit of rates", func() bool {
		return get(request{from: "client", address: echoAt(81), host: "echo.a", path: "/"}).status == http.StatusTooManyRequests
	})
	if a := get(request{from: "client", address: echoAt(80), host: "echo.a", path: "/"}); a.status != http.StatusOK {
		t.Errorf("a port without the limit: %v", a)
	}
	suite.Eventually(t, "a route to a cluster, both added", func() bool {
		return get(request{from: "client", address: echoAt(80), host: "echo.a", path: "/mine"}).header.Get("X-Server") == "slow"
	})
	suite.Eventually(t, "a filter that is removed", func() bool {
		return get(request{from: "client", address: echoAt(80), host: "echo.a", path: "/teapot"}).status == http.StatusOK
	})
	if a := get(request{from: "other", address: echoAt(80), host: "echo.a", path: "/teapot"}); a.status != http.StatusTeapot {
		t.Errorf("a proxy that no patch selects: %v", a)
	}
	stats, err := m.Pod("client").Proxy.Stats(t.Context(), `cluster\.patched\.`)
	if err != nil || len(stats) == 0 {
		t.Errorf("a patch behind a broken one is lost: %v", err)
	}
	m.healthy()

	want := brokenPatches()
	var found []string
	defer func() {
		if t.Failed() {
			t.Logf("the last findings: %q", found)
		}
	}()
	suite.Eventually(t, "findings", func() bool {
		found = nil
		for _, d := range m.findings() {
			if strings.HasPrefix(d.Object, "EnvoyFilter ") {
				found = append(found, fmt.Sprint(d.Object, " ", d.Field, " ", d.Code, " ", strings.HasSuffix(d.File, "patches.yaml") && d.Line > 3))
			}
		}
		return len(found) == len(want) && !slices.ContainsFunc(found, func(f string) bool {
			part := strings.Fields(f)
			return want[strings.Join(part[:3], " ")] != part[3] || part[4] != "true"
		})
	})

	before := map[string]int{"client": m.updates("client"), "other": m.updates("other"), "gateway": m.updates("gateway")}
	m.write("patches.yaml", strings.Replace(patchesYAML, "MARK", "second", 1))
	suite.Eventually(t, "an edit", func() bool {
		return get(request{from: "client", address: echoAt(80), host: "echo.a", path: "/"}).header.Get("X-Server-Mark") == "second"
	})
	for pod, n := range before {
		if now := m.updates(pod); now != n {
			t.Errorf("the proxy of %s, which the object does not select, was updated %d times", pod, now-n)
		}
	}

	m.write("patches.yaml", "")
	suite.Eventually(t, "no filters", func() bool {
		a := get(request{from: "slow", address: envoyFilterGatewayPod, host: "x", path: "/"})
		return a.status == http.StatusOK && a.header.Get("X-Server-Mark") == "" && a.header.Get("X-Gateway-Mark") == ""
	})
	suite.Eventually(t, "no network filter", func() bool { return strings.HasSuffix(line(), "hello") })
	suite.Eventually(t, "the filter that was removed", func() bool {
		return get(request{from: "client", address: echoAt(80), host: "echo.a", path: "/teapot"}).status == http.StatusTeapot
	})
	suite.Eventually(t, "the route that a patch added goes", func() bool {
		a := get(request{from: "client", address: echoAt(80), host: "echo.a", path: "/mine"})
		return a.status == http.StatusOK && a.header.Get("X-Server") == ""
	})
	m.healthy()
}
