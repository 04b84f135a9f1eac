package inspect

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/catalog"
	"github.com/istiod-lite/istiod-lite/pilot/ingest"
)

// TestWays: whether requests reach applications, and what the answers must say, for meshes of real reports.
func TestWays(t *testing.T) {
	pod := func(name, ip, labels, rest string) string {
		return `{apiVersion: v1, kind: Pod, metadata: {name: ` + name + `, namespace: a, labels: {` + labels + `}` + rest +
			`}, spec: {serviceAccountName: ` + name + `, containers: [{name: app, image: app}]}, status: {podIP: ` + ip +
			`, phase: Running, conditions: [{type: Ready, status: "True"}]}}` + "\n---\n"
	}
	service := func(name, ip, ports string) string {
		return `{apiVersion: v1, kind: Service, metadata: {name: ` + name + `, namespace: a}, spec: {clusterIP: ` + ip + `, selector: {app: ` +
			name + `}, ports: [` + ports + `]}}` + "\n---\n"
	}
	object := func(kind, name, spec string) string {
		group := "networking.istio.io/v1"
		if kind == "AuthorizationPolicy" || kind == "PeerAuthentication" {
			group = "security.istio.io/v1"
		}
		return `{apiVersion: ` + group + `, kind: ` + kind + `, metadata: {name: ` + name + `, namespace: a}, spec: {` + spec + `}}` + "\n---\n"
	}
	const in, out = "security.istio.io/tlsMode: istio", `sidecar.istio.io/inject: "false"`
	base := pod("client", "10.0.0.1", "app: client, "+in, "") +
		pod("web-1", "10.0.0.2", "app: web, version: v1, "+in, "") + pod("web-2", "10.0.0.3", "app: web, version: v2, "+in, "") +
		pod("legacy", "10.0.0.4", "app: legacy, "+out, "") +
		pod("gw", "10.0.0.9", "istio: gw", ", annotations: {inject.istio.io/templates: gateway}") +
		service("web", "10.96.0.1", "{name: http, port: 80, targetPort: 8080}, {name: tcp, port: 90}") +
		service("legacy", "10.96.0.2", "{name: http, port: 8000}, {name: https, port: 8443}") +
		`{apiVersion: v1, kind: Service, metadata: {name: gw, namespace: a}, spec: {clusterIP: 10.96.0.9, selector: {istio: gw},
  ports: [{name: http, port: 80, targetPort: 8080, nodePort: 31080}, {name: tls, port: 443, targetPort: 8443},
    {name: tcp, port: 3306, targetPort: 13306}]}}
---
`
	toWeb := "route: [{destination: {host: web, port: {number: 80}}}]"
	toGateway := object("VirtualService", "v", "gateways: [gw], hosts: [shop.test], http: [{"+toWeb+"}]")
	entry := func(namespace, port, rest string) string {
		spec := "hosts: [out.test], resolution: STATIC, endpoints: [{address: 1.2.3.4}], ports: [{name: tcp, number: " + port +
			", protocol: TCP}]" + rest
		return strings.Replace(object("ServiceEntry", "out", spec), "namespace: a", "namespace: "+namespace, 1)
	}
	const answered = "DNS outside the mesh"
	gateway := func(server string) string {
		return object("Gateway", "gw", "selector: {istio: gw}, servers: [{hosts: [shop.test], "+server+"}]")
	}
	headless := `{apiVersion: v1, kind: Service, metadata: {name: peers, namespace: a}, spec: {clusterIP: None, selector: {app: web}, ` +
		`ports: [{port: 9000, name: tcp, targetPort: 9000}]}}` + "\n---\n"
	withPROXY := pod("wanting", "10.0.0.8", "istio: gw, app: wanting", ", annotations: {inject.istio.io/templates: gateway, "+
		`proxy.istio.io/config: "gatewayTopology: {proxyProtocol: {}}"}`) + service("wanting", "10.96.0.8", "{name: http, port: 80}")
	token := strings.Replace(object("RequestAuthentication", "r", `jwtRules: [{issuer: i, jwks: '{"keys":[{"kty":"EC","crv":"P-256",`+
		`"kid":"k","x":"-hOZ08elhHQ-QaIaLCkciudGVUnH0Sv0z7ghplqie4c","y":"aBiMHCIRhLbV2d2kop_GanRmmBGSTXtFazATLbLr32g"}]}'}]`),
		"networking.istio.io", "security.istio.io", 1)
	for _, c := range []struct {
		name, objects string
		q             Query
		reached       bool
		says          []string // parts of steps, notes, reasons or what it depends on
	}{
		{"all endpoints", "", Query{Host: "web", Port: 80}, true, nil},
		{"one of the endpoints refuses",
			object("AuthorizationPolicy", "deny", "selector: {matchLabels: {version: v2}}, action: DENY, rules: [{}]"),
			Query{Host: "web", Port: 80}, false, []string{"Envoy may choose web-2.a, where the request is answered with status 403: "}},
		{"mutual TLS to a Pod without a proxy", object("DestinationRule", "all", `host: "*.local", trafficPolicy: {tls: {mode: ISTIO_MUTUAL}}`),
			Query{Host: "legacy", Port: 8000}, false,
			[]string{"status 503", "the TLS handshake fails: DestinationRule a/all", "legacy.a has no proxy"}},
		{"mutual TLS to an address", object("ServiceEntry", "out", "hosts: [out.test], resolution: STATIC, endpoints: [{address: 1.2.3.4}], "+
			"ports: [{name: http, number: 80, protocol: HTTP}]") +
			object("DestinationRule", "all", `host: "*", trafficPolicy: {tls: {mode: ISTIO_MUTUAL}}`),
			Query{Host: "out.test", Port: 80}, false, []string{"status 503", "1.2.3.4 has no proxy"}},
		{"TLS to plaintext", object("DestinationRule", "tls", "host: legacy, trafficPolicy: {tls: {mode: SIMPLE}}"),
			Query{Host: "legacy", Port: 8000}, false, []string{"legacy.a may not take TLS at port 8000: DestinationRule a/tls", "declared as HTTP"}},
		{"TLS within TLS", object("DestinationRule", "tls", "host: legacy, trafficPolicy: {tls: {mode: SIMPLE}}"),
			Query{Host: "legacy", Port: 8443, TLS: true}, false, []string{"may not take TLS within TLS"}},
		{"a header of one destination of several", object("VirtualService", "v", "hosts: [web], http: [{route: ["+
			"{destination: {host: web}, weight: 50, headers: {request: {set: {x-tier: gold}}}}, {destination: {host: legacy}, weight: 50}]}]") +
			object("AuthorizationPolicy", "tier", "selector: {matchLabels: {app: web}}, rules: [{when: [{key: 'request.headers[x-tier]', "+
				"values: [gold]}]}]"),
			Query{Host: "web", Port: 80}, false, []string{"the value of header x-tier, which depends on the cluster"}},
		{"a header of the only destination", object("VirtualService", "v", "hosts: [web], http: [{route: ["+
			"{destination: {host: web}, weight: 100, headers: {request: {set: {x-tier: gold}}}}, {destination: {host: legacy}, weight: 0}]}]") +
			object("AuthorizationPolicy", "tier", "selector: {matchLabels: {app: web}}, rules: [{when: [{key: 'request.headers[x-tier]', "+
				"values: [gold]}]}]"),
			Query{Host: "web", Port: 80}, true, nil},
		{"a regular expression and a rewrite of the path", object("VirtualService", "v", "hosts: [web], http: [{match: "+
			"[{uri: {regex: '/v[0-9]+/.*'}}], rewrite: {uri: /api}, "+toWeb+"}]"),
			Query{Host: "web", Port: 80, Path: "/v1/x?q=1"}, true, []string{"path /api?q=1"}},
		{"TLS behind the PROXY protocol", object("DestinationRule", "p", "host: web, trafficPolicy: {proxyProtocol: {version: V2}, "+
			"tls: {mode: ISTIO_MUTUAL}}") + object("PeerAuthentication", "strict", "mtls: {mode: STRICT}"),
			Query{Host: "web", Port: 80}, false, []string{"status 503"}},
		{"the PROXY protocol to a proxy", object("DestinationRule", "p", "host: web, trafficPolicy: {proxyProtocol: {version: V1}}"),
			Query{Host: "web", Port: 80}, false, []string{"status 503", "the connection carries another protocol"}},
		{"the PROXY protocol that a gateway wants", gateway("port: {number: 80, name: http, protocol: HTTP}") + toGateway + withPROXY,
			Query{Source: "wanting.a", Host: "shop.test", Port: 80}, false,
			[]string{"status 200", "the client, or a load balancer before the gateway, must send it"}},
		{"no PROXY protocol that a gateway wants", gateway("port: {number: 80, name: http, protocol: HTTP}") + toGateway + withPROXY,
			Query{Host: "wanting", Port: 80}, false, []string{"status 503", "and the caller sends none"}},
		{"an entry that leads to a Service", object("ServiceEntry", "self", "hosts: [self.test], addresses: [10.5.0.3], resolution: STATIC, "+
			"endpoints: [{address: 10.96.0.1}], ports: [{name: http, number: 80, protocol: HTTP}]") +
			object("PeerAuthentication", "strict", "mtls: {mode: STRICT}"), Query{Host: "10.5.0.3", Port: 80}, false,
			[]string{"it accepts only mutual TLS"}},
		{"an entry that leads to the name of a Service", object("ServiceEntry", "self", "hosts: [self.test], addresses: [10.5.0.3], "+
			"resolution: DNS, endpoints: [{address: web.a.svc.cluster.local}], ports: [{name: http, number: 80, protocol: HTTP}]"),
			Query{Host: "10.5.0.3", Port: 80}, true, nil},
		{"an entry that leads to a port that a Service has not", object("ServiceEntry", "self", "hosts: [self.test], addresses: [10.5.0.3], "+
			"resolution: STATIC, endpoints: [{address: 10.96.0.1}], ports: [{name: http, number: 81, protocol: HTTP}]"),
			Query{Host: "10.5.0.3", Port: 81}, false, []string{"status 503", "web.a.svc.cluster.local has no port 81"}},
		{"load balancing PASSTHROUGH", object("DestinationRule", "p", "host: web, trafficPolicy: {loadBalancer: {simple: PASSTHROUGH}}") +
			object("PeerAuthentication", "strict", "mtls: {mode: STRICT}"), Query{Host: "web", Port: 80}, true, nil},
		{"an alias of a host outside", `{apiVersion: v1, kind: Service, metadata: {name: ext, namespace: a}, spec: {type: ExternalName, ` +
			`externalName: api.out.test, ports: [{port: 80, name: http}]}}` + "\n---\n", Query{Host: "ext", Port: 80}, false,
			[]string{"status 200", "DNS has for api.out.test, the externalName of Service a/ext"}},
		{"plaintext to a port for TLS", object("VirtualService", "v", "hosts: [web], http: [{route: [{destination: {host: legacy, "+
			"port: {number: 8443}}}]}]"), Query{Host: "web", Port: 80}, false,
			[]string{"status 200", "legacy.a may not take plaintext at port 8443", "declared as HTTPS"}},
		{"gRPC to a port for HTTP/1.1", "", Query{Host: "legacy", Port: 8000, Method: "POST", Headers: map[string]string{
			"content-type": "application/grpc"}}, false, []string{"status 200", "legacy.a may not take gRPC by HTTP/1.1"}},
		{"TCP that a proxy reads as HTTP", service("both", "10.96.0.6", "{name: tcp, port: 90, targetPort: 8080}") +
			service("other", "10.96.0.5", "{name: http, port: 80, targetPort: 8080}") + pod("both", "10.0.0.6", "app: both, "+in, ""),
			Query{Host: "both", Port: 90}, true, nil},
		{"a headless Service of which one Pod refuses", headless + object("AuthorizationPolicy", "deny", "selector: {matchLabels: "+
			"{version: v2}}, action: DENY, rules: [{}]"), Query{Host: "peers", Port: 9000}, false,
			[]string{"status 200", "DNS may give 10.0.0.3 for peers.a.svc.cluster.local, where "}},
		{"a headless Service with another targetPort", strings.Replace(headless, "targetPort: 9000", "targetPort: 9001", 1),
			Query{Host: "peers", Port: 9000}, false, []string{"status 200", "may not listen at port 9000"}},
		{"an upgrade that no one takes", "", Query{Host: "web", Port: 80, Headers: map[string]string{"connection": "Upgrade", "upgrade": "foo"}},
			false, []string{"status 403", "takes an upgrade to foo"}},
		{"a WebSocket", "", Query{Host: "web", Port: 80, Headers: map[string]string{"connection": "Upgrade", "upgrade": "WebSocket"}}, true, nil},
		{"an alias of a Service", `{apiVersion: v1, kind: Service, metadata: {name: alias, namespace: a}, spec: {type: ExternalName, ` +
			`externalName: web.a.svc.cluster.local, ports: [{port: 90, name: tcp}]}}` + "\n---\n", Query{Host: "alias", Port: 90}, true,
			[]string{"listener 10.96.0.1_90"}},
		{"a port of the proxy itself", object("PeerAuthentication", "strict", "mtls: {mode: STRICT}"), Query{Source: "legacy.a",
			Host: "10.0.0.2", Port: 15020}, true, nil},
		{"a preflight with a token that is refused", token, Query{Host: "web", Port: 80, Method: "OPTIONS", Headers: map[string]string{
			"origin": "http://x", "access-control-request-method": "GET"}, Claims: map[string]any{"iss": "j"}}, true, nil},
		{"a certificate of another name", object("DestinationRule", "names", "host: web, trafficPolicy: {tls: {mode: ISTIO_MUTUAL, "+
			"subjectAltNames: ['spiffe://cluster.local/ns/a/sa/other']}}"), Query{Host: "web", Port: 80}, false,
			[]string{"status 503", `DestinationRule a/names spec.trafficPolicy.tls`,
				`wants a certificate with "spiffe://cluster.local/ns/a/sa/other"`}},
		{"a tunnel", object("DestinationRule", "tunnel", "host: web, trafficPolicy: {tunnel: {protocol: CONNECT, targetHost: out.test, "+
			"targetPort: 443}}"), Query{Host: "web", Port: 90}, false, []string{"the connection goes through a tunnel"}},
		{"HTTP/2 to an application for HTTP/1.1", object("DestinationRule", "up", "host: legacy, trafficPolicy: {connectionPool: {http: "+
			"{h2UpgradePolicy: UPGRADE}}}"), Query{Host: "legacy", Port: 8000}, false, []string{"status 200", "may not take HTTP/2"}},
		{"a token for other audiences", strings.Replace(token, "issuer: i,", "issuer: i, audiences: [shop.test],", 1), Query{
			Host: "web", Port: 80, Claims: map[string]any{"iss": "i"}, TokenHeader: map[string]any{"alg": "ES256", "kid": "k"}}, false,
			[]string{"status 403", "it has no audience"}},
		{"a token for an audience with a scheme", strings.Replace(token, "issuer: i,", "issuer: i, audiences: [shop.test],", 1),
			Query{Host: "web", Port: 80, Claims: map[string]any{"iss": "i", "aud": "https://shop.test/"},
				TokenHeader: map[string]any{"alg": "ES256", "kid": "k"}}, true, nil},
		{"the header of a client's certificate", object("AuthorizationPolicy", "cert", "action: DENY, rules: [{when: [{key: "+
			"'request.headers[x-forwarded-client-cert]', values: ['*']}]}]"), Query{Host: "web", Port: 80}, false,
			[]string{"in which the proxy writes the certificate of the client"}},
		{"a forged header of a client's certificate", object("AuthorizationPolicy", "cert", "rules: [{when: [{key: "+
			"'request.headers[x-forwarded-client-cert]', values: ['*']}]}]"), Query{Source: "legacy.a", Host: "web", Port: 80,
			Headers: map[string]string{"x-forwarded-client-cert": "URI=x"}}, false, []string{"status 403"}},
		{"the path before a rewrite", object("VirtualService", "v", "hosts: [web], http: [{rewrite: {uri: /new}, "+toWeb+"}]") +
			object("AuthorizationPolicy", "path", "action: DENY, rules: [{when: [{key: 'request.headers[x-envoy-original-path]', values: "+
				"['/old']}]}]"), Query{Host: "web", Port: 80, Path: "/old"}, false, []string{"status 403"}},
		{"UDP by TCP", `{apiVersion: v1, kind: Service, metadata: {name: dns, namespace: a}, spec: {clusterIP: 10.96.0.53, ` +
			`selector: {app: web}, ports: [{port: 99, protocol: UDP}]}}` + "\n---\n", Query{Host: "dns", Port: 99}, false,
			[]string{"has no port 99 for TCP"}},
		{"a listener of the proxy's own", object("Sidecar", "s", "workloadSelector: {labels: {app: client}}, egress: [{port: {number: 3128, "+
			"protocol: HTTP_PROXY, name: p}, bind: 127.0.0.1, captureMode: NONE, hosts: ['*/*']}, {hosts: ['*/*']}]"),
			Query{Host: "127.0.0.1", Port: 3128, Headers: map[string]string{"host": "web"}}, true, []string{"listener 127.0.0.1_3128"}},
		{"a proxy that does not intercept", pod("free", "10.0.0.6", "app: free, "+in, ", annotations: {sidecar.istio.io/interceptionMode: NONE}"),
			Query{Source: "free.a", Host: "web", Port: 80}, true, []string{"the proxy intercepts no connections"}},
		{"a range of addresses", entry("a", "90", ", addresses: [10.7.0.0/16]"), Query{Host: "out.test", Port: 90}, false,
			[]string{"the connection goes to ServiceEntry a/out"}},
		{"a Sidecar that lets nothing out", object("Sidecar", "s", "egress: [{hosts: ['b/*']}], outboundTrafficPolicy: {mode: REGISTRY_ONLY}"),
			Query{Host: "web", Port: 80}, false, []string{"status 0", "Sidecar a/s spec.outboundTrafficPolicy",
				"does not import it"}},
		{"a condition on a header", object("AuthorizationPolicy", "key", "rules: [{when: [{key: 'request.headers[x-key]', values: [a]}]}]"),
			Query{Host: "web", Port: 80}, false, []string{"status 403"}},
		{"a token of an algorithm without a key", token, Query{Host: "web", Port: 80, Claims: map[string]any{"iss": "i"},
			TokenHeader: map[string]any{"alg": "HS256"}}, false, []string{"status 401", "no key of its issuer is for its algorithm HS256"}},
		{"a token of a key", token, Query{Host: "web", Port: 80, Claims: map[string]any{"iss": "i"},
			TokenHeader: map[string]any{"alg": "ES256", "kid": "k"}}, true, nil},
		{"a namespace without injection", "{apiVersion: v1, kind: Namespace, metadata: {name: b, labels: {istio-injection: disabled}}}\n---\n" +
			strings.Replace(pod("bare", "10.0.0.6", "app: bare", ""), "namespace: a", "namespace: b", 1),
			Query{Source: "bare.b", Host: "web.a", Port: 80}, true, []string{"proxy none: the Pod has none"}},
		{"mutual TLS that the proxy does not end", object("PeerAuthentication", "plain", "selector: {matchLabels: {app: web}}, "+
			"mtls: {mode: DISABLE}") + object("DestinationRule", "web", "host: web, trafficPolicy: {tls: {mode: ISTIO_MUTUAL}}"),
			Query{Host: "web", Port: 90}, false, []string{"the TLS handshake fails: DestinationRule a/web", "passes TLS on to the application"}},
		{"CONNECT where paths are routed", "", Query{Host: "web", Port: 80, Method: "CONNECT"}, false,
			[]string{"no route of virtual host web.a.svc.cluster.local:80 matches"}},
		{"a port that is not included", pod("web-3", "10.0.0.7", "app: open, "+in, ", annotations: "+
			"{traffic.sidecar.istio.io/includeInboundPorts: '9090'}") + service("open", "10.96.0.7", "{name: http, port: 80}"),
			Query{Host: "open", Port: 80}, false, []string{"includeInboundPorts of web-3.a leads port 80 past its proxy"}},
		{"an address that the proxy asks DNS for", object("ServiceEntry", "out", "hosts: [out.test], addresses: [10.5.0.9], resolution: DNS, "+
			"ports: [{name: http, number: 80, protocol: HTTP}], endpoints: [{address: else.test}]"), Query{Host: "10.5.0.9", Port: 80}, false,
			[]string{"the proxy asks DNS for else.test"}},
		{"a line with the host that a route writes", gateway("port: {number: 80, name: http, protocol: HTTP}") + object("VirtualService", "v",
			"gateways: [gw], hosts: [shop.test], http: [{rewrite: {authority: web}, "+toWeb+"}]"),
			Query{Source: "gw.a", Log: `[2026-11-29T13:20:16.123Z] "GET / HTTP/1.1" 200 - via_upstream - "-" 0 19 0 0 "10.0.0.200" "-" "id" "web" ` +
				`"10.0.0.2:8080" outbound|80||web.a.svc.cluster.local 10.0.0.9:40000 10.0.0.9:8080 10.0.0.200:40000 - -`}, true,
			[]string{"the request was for shop.test: the line has the host web, which a route writes"}},
		{"a Secret of the Gateway API", gateway("port: {number: 443, name: https, protocol: HTTPS}, tls: {mode: SIMPLE, "+
			"credentialName: kubernetes-gateway://a/none}") + toGateway,
			Query{Source: "gw.a", Host: "shop.test", Port: 443, TLS: true}, false, []string{"there is no Secret a/none"}},
		{"TLS to a proxy", object("DestinationRule", "web", "host: web, trafficPolicy: {tls: {mode: SIMPLE}}"),
			Query{Host: "web", Port: 80}, false, []string{"status 503"}},
		{"TLS of the mesh", object("DestinationRule", "web", "host: web, trafficPolicy: {tls: {mode: ISTIO_MUTUAL}}") +
			object("PeerAuthentication", "strict", "mtls: {mode: STRICT}"), Query{Host: "web", Port: 80}, true, nil},

		{"passthrough behind another port", gateway("port: {number: 443, name: tls, protocol: TLS}, tls: {mode: PASSTHROUGH}") +
			object("VirtualService", "pass", "gateways: [gw], hosts: [shop.test], tls: [{match: [{sniHosts: [shop.test]}], "+
				"route: [{destination: {host: legacy, port: {number: 8443}}}]}]"),
			Query{Source: "gw.a", Host: "shop.test", Port: 443, TLS: true}, true,
			[]string{"listener 0.0.0.0_8443", "a Service leads port 443 there"}},
		{"TCP behind another port", gateway("port: {number: 3306, name: tcp, protocol: TCP}") +
			object("VirtualService", "tcp", "gateways: [gw], hosts: ['*'], tcp: [{route: [{destination: {host: web, port: {number: 90}}}]}]"),
			Query{Source: "gw.a", Host: "shop.test", Port: 3306}, true, []string{"listener 0.0.0.0_13306"}},
		{"AUTO_PASSTHROUGH behind another port", object("Gateway", "cross", "selector: {istio: gw}, servers: [{hosts: ['*.local'], "+
			"port: {number: 443, name: tls, protocol: TLS}, tls: {mode: AUTO_PASSTHROUGH}}]"),
			Query{Source: "gw.a", Host: "outbound_.80_._.web.a.svc.cluster.local", Port: 443, TLS: true}, false, []string{"listener 0.0.0.0_8443"}},
		{"a port of no Gateway", gateway("port: {number: 80, name: http, protocol: HTTP}"),
			Query{Source: "gw.a", Host: "shop.test", Port: 443, TLS: true}, false,
			[]string{"no listener takes connections to port 8443: of its Gateways, a/gw has 80"}},
		{"a port of the nodes", gateway("port: {number: 80, name: http, protocol: HTTP}") + toGateway,
			Query{Source: "gw.a", Host: "shop.test", Port: 31080}, true,
			[]string{"port 8080: node port 31080 of Service a/gw leads there", "listener 0.0.0.0_8080"}},
		{"a Gateway with a port of the nodes", gateway("port: {number: 31080, name: http, protocol: HTTP}") + toGateway,
			Query{Source: "gw.a", Host: "shop.test", Port: 31080}, false, []string{"no listener takes connections to port 8080"}},
		{"a server without rules of its protocol", gateway("port: {number: 443, name: tls, protocol: TLS}, tls: {mode: PASSTHROUGH}") +
			toGateway, Query{Source: "gw.a", Host: "shop.test", Port: 443, TLS: true}, false,
			[]string{"Gateway a/gw spec.servers[0]", "does not read HTTP, and no VirtualService has tls rules for its hosts"}},
		{"a port that a service takes for every address", object("ServiceEntry", "hooks", "hosts: [hooks.test], resolution: DNS, "+
			"ports: [{name: tcp, number: 443, protocol: TCP}]"), Query{Host: "evil.test", Port: 443, TLS: true}, false,
			[]string{"the connection goes to hooks.test: it has port 443 for every address, and no service has the host evil.test"}},
		{"a backend without a grant", `{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: istio},
  spec: {controllerName: istio.io/gateway-controller}}
---
{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: own, namespace: a}, spec: {gatewayClassName: istio, listeners: [
  {name: http, protocol: HTTP, port: 80}]}}
---
{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: r, namespace: a}, spec: {parentRefs: [{name: own}], rules: [
  {backendRefs: [{name: web, namespace: b, port: 80}]}]}}
---
` + pod("own", "10.0.0.8", "gateway.networking.k8s.io/gateway-name: own", ", annotations: {inject.istio.io/templates: gateway}"),
			Query{Source: "own.a", Host: "shop.test", Port: 80}, false, []string{"status 500", "HTTPRoute a/r spec.rules[0].backendRefs[0]",
				"missing a ReferenceGrant?"}},
		{"a port of no Gateway at all", "", Query{Source: "gw.a", Host: "shop.test", Port: 80}, false,
			[]string{"no listener takes connections to port 8080: no Gateway selects gw.a"}},
		{"a listener without the grant for its Secret", `{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: istio},
  spec: {controllerName: istio.io/gateway-controller}}
---
{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: own, namespace: a}, spec: {gatewayClassName: istio, listeners: [
  {name: tls, protocol: HTTPS, port: 443, tls: {certificateRefs: [{name: cert, namespace: b}]}}]}}
---
` + pod("own", "10.0.0.8", "gateway.networking.k8s.io/gateway-name: own", ", annotations: {inject.istio.io/templates: gateway}"),
			Query{Source: "own.a", Host: "shop.test", Port: 443, TLS: true}, false, []string{"ReferenceGrant",
				"no listener takes connections to port 443: Gateway a/own spec.listeners[0].tls.certificateRefs[0]"}},
		{"a Secret of another namespace", gateway("port: {number: 443, name: one, protocol: HTTPS}, tls: {mode: SIMPLE, credentialName: gone}") +
			"{apiVersion: v1, kind: Secret, metadata: {name: gone, namespace: b}}\n---\n",
			Query{Source: "gw.a", Host: "shop.test", Port: 443, TLS: true}, false,
			[]string{"there is no Secret a/gone, and the proxy does not read the one of namespace b"}},
		{"a Secret of another host", gateway("port: {number: 443, name: one, protocol: HTTPS}, tls: {mode: ISTIO_MUTUAL}}, " +
			"{hosts: [other.test], port: {number: 443, name: two, protocol: HTTPS}, tls: {mode: SIMPLE, credentialName: gone}"),
			Query{Source: "gw.a", Host: "shop.test", Port: 443, TLS: true, Certificate: true}, false,
			[]string{"changes of this listener of gw.a come into force 15 seconds late"}},
		{"a rule with an error", gateway("port: {number: 80, name: http, protocol: HTTP}") + object("VirtualService", "v",
			"gateways: [gw], hosts: [shop.test], http: [{match: [{uri: {prefix: /}}], route: [{destination: {host: a/web}}]}]"),
			Query{Source: "gw.a", Host: "shop.test", Port: 80}, false,
			[]string{"the route answers by itself: VirtualService a/v spec.http[0].route[0].destination.host"}},
		{"a Gateway with a port of no Service", gateway("port: {number: 31081, name: http, protocol: HTTP}") + toGateway,
			Query{Source: "gw.a", Host: "shop.test", Port: 31081}, false, []string{"no Service leads port 31081 to gw.a"}},
		{"a Gateway with a port of the Pod", gateway("port: {number: 8080, name: http, protocol: HTTP}") + toGateway,
			Query{Source: "gw.a", Host: "shop.test", Port: 80}, true, []string{"port 8080: a Service leads port 80 there"}},
		{"a bind of another address", gateway("port: {number: 80, name: http, protocol: HTTP}, bind: 10.9.9.9") +
			object("VirtualService", "v", "gateways: [gw], hosts: [shop.test], http: [{"+toWeb+"}]"),
			Query{Source: "gw.a", Host: "shop.test", Port: 80}, false, []string{"servers bind it at 10.9.9.9 alone"}},

		{"a bind of the Pod's own address", gateway("port: {number: 80, name: http, protocol: HTTP}, bind: 10.0.0.9") +
			object("VirtualService", "v", "gateways: [gw], hosts: [shop.test], http: [{"+toWeb+"}]"),
			Query{Source: "gw.a", Host: "shop.test", Port: 80}, true, []string{"listener 10.0.0.9_8080"}},

		{"an unknown host", "", Query{Host: "wbe", Port: 80}, false,
			[]string{"did you mean web", "it leaves the mesh to the address that DNS has for wbe"}},
		{"an unknown address", "", Query{Host: "1.2.3.4", Port: 80}, false, []string{"it leaves the mesh to 1.2.3.4"}},
		{"the Pod itself", "", Query{Host: "127.0.0.1", Port: 8080}, true, []string{"127.0.0.1 is the Pod itself"}},
		{"a destination without a port", object("VirtualService", "v", "hosts: [legacy], http: [{route: [{destination: {host: web}}]}]"),
			Query{Host: "legacy", Port: 8000}, false, []string{"web.a.svc.cluster.local has no port 8000: it has 80, 90"}},

		{"a host of a namespace of its own", entry("1st", "90", ", addresses: [10.5.0.2], exportTo: ['.']") +
			entry("a", "90", ", addresses: [10.5.0.1]"), Query{Host: "out.test", Port: 90}, false,
			[]string{"listener 10.5.0.1_90", answered + " has it as 10.5.0.1"}},
		{"a host of another namespace", entry("b", "90", ", exportTo: ['.']"), Query{Host: "out.test", Port: 90}, false,
			[]string{"ServiceEntry b/out", "has port 90 of out.test, and the proxy of client.a is not sent it: its exportTo"}},
		{"a port of another namespace", entry("b", "91", "") + entry("a", "90", ""), Query{Host: "out.test", Port: 91}, false,
			[]string{"out.test has no port 91", "ServiceEntry b/out", "namespace a uses ServiceEntry a/out"}},
		{"a host that no Sidecar imports", entry("b", "90", "") + object("Sidecar", "s", "egress: [{hosts: ['./*']}]"),
			Query{Host: "out.test", Port: 90}, false, []string{"ServiceEntry b/out", "Sidecar a/s", "does not import it"}},
		{"a host that a Sidecar excludes", entry("b", "90", "") + object("Sidecar", "s", "egress: [{hosts: ['*/*', '~b/*']}]"),
			Query{Host: "out.test", Port: 90}, false, []string{"ServiceEntry b/out", "Sidecar a/s spec.egress[0].hosts[1]", "excludes it"}},
		{"a Service that a Sidecar excludes", object("Sidecar", "s", "egress: [{hosts: ['*/*', '~/*.a.svc.cluster.local']}]"),
			Query{Host: "web", Port: 80}, true, []string{"no mutual TLS apply. Sidecar a/s spec.egress[0].hosts[1]", "excludes it"}},
		{"a Service that no Sidecar imports", object("Sidecar", "s", "egress: [{hosts: ['b/*']}]"),
			Query{Host: "web", Port: 80}, true, []string{"no route and no mutual TLS apply. Sidecar a/s", "does not import it"}},
		{"a host that DNS may not know", entry("a", "90", ", location: MESH_INTERNAL"), Query{Host: "out.test", Port: 90}, false,
			[]string{answered, "its proxy answers for ServiceEntry a/out", "with ISTIO_META_DNS_CAPTURE and ISTIO_META_DNS_AUTO_ALLOCATE"}},
		{"a host that the proxy answers for", entry("a", "90", ", location: MESH_INTERNAL") +
			pod("asking", "10.0.0.5", "app: asking, "+in, ", annotations: {proxy.istio.io/config: "+
				`"proxyMetadata: {ISTIO_META_DNS_CAPTURE: 'true', ISTIO_META_DNS_AUTO_ALLOCATE: 'true'}"}`),
			Query{Source: "asking.a", Host: "out.test", Port: 90}, true, []string{"listener 240.240."}},
		{"a machine with a name", object("ServiceEntry", "vm", "hosts: [vm.test], location: MESH_INTERNAL, resolution: DNS, "+
			"workloadSelector: {labels: {app: vm}}, ports: [{name: http, number: 80, protocol: HTTP, targetPort: 8080}]") +
			object("WorkloadEntry", "vm", "address: vm.corp.test, serviceAccount: vm, labels: {app: vm}"),
			Query{Host: "vm.test", Port: 80}, false, []string{"status 200", answered}},
		{"an endpoint with a proxy that is not known", object("ServiceEntry", "vm", "hosts: [vm.test], location: MESH_INTERNAL, "+
			"resolution: STATIC, endpoints: [{address: 1.2.3.4, serviceAccount: vm}], ports: [{name: http, number: 80, protocol: HTTP}]"),
			Query{Host: "vm.test", Port: 80}, false, []string{"status 200", "what the proxy at 1.2.3.4 answers is not known here"}},

		{"for another gateway", object("VirtualService", "v", "hosts: [web], gateways: [gw], http: [{"+toWeb+"}]"),
			Query{Host: "web", Port: 80}, true, []string{"VirtualService a/v", "it is for the gateways a/gw, and not for sidecars"}},
		{"not exported", strings.Replace(object("VirtualService", "v", "hosts: [web.a.svc.cluster.local], exportTo: ['.'], http: [{"+toWeb+"}]"),
			"namespace: a}", "namespace: b}", 1), Query{Host: "web", Port: 80}, true,
			[]string{"VirtualService b/v", "its exportTo does not have namespace a"}},
		{"not imported", strings.Replace(object("VirtualService", "v", "hosts: [web.a.svc.cluster.local], http: [{"+toWeb+"}]"),
			"namespace: a}", "namespace: b}", 1) + object("Sidecar", "s", "egress: [{hosts: ['a/*']}]"),
			Query{Host: "web", Port: 80}, true, []string{"VirtualService b/v", "Sidecar a/s", "does not import"}},
		{"excluded", strings.Replace(object("VirtualService", "v", "hosts: [web.a.svc.cluster.local], http: [{"+toWeb+"}]"),
			"namespace: a}", "namespace: b}", 1) + object("Sidecar", "s", "egress: [{hosts: ['*/*', '~b/web.a.svc.cluster.local']}]"),
			Query{Host: "web", Port: 80}, true, []string{"VirtualService b/v", "Sidecar a/s spec.egress[0].hosts[1]",
				"excludes its host web.a.svc.cluster.local"}},
		{"an older one wins", object("VirtualService", "one", "hosts: [web], http: [{"+toWeb+"}]") +
			object("VirtualService", "two", "hosts: [web], http: [{"+toWeb+"}]"),
			Query{Host: "web", Port: 80}, true, []string{"VirtualService a/two", "another one wins: VirtualService a/one"}},
		{"http rules for TCP", object("VirtualService", "v", "hosts: [web], http: [{"+toWeb+"}]"),
			Query{Host: "web", Port: 90}, true, []string{"it has http rules, and port 90 of web.a.svc.cluster.local is TCP"}},
		{"hosts of no service", object("VirtualService", "v", "hosts: [none.test], http: [{"+toWeb+"}]"),
			Query{Host: "none.test", Port: 8080}, false, []string{"sidecars use such a VirtualService at port 80 alone"}},

		{"the rule of a delegate",
			object("VirtualService", "root", "hosts: [web], http: [{match: [{uri: {prefix: /a}}], delegate: {name: child}}]") +
				object("VirtualService", "child", "http: [{match: [{uri: {prefix: /a/b}}], "+toWeb+"}, {"+toWeb+"}]"),
			Query{Host: "web", Port: 80, Path: "/a/c"}, true, []string{"by VirtualService a/child spec.http[1] "}},
		{"matches for another port", object("VirtualService", "v", "hosts: [web], http: [{match: [{port: 81}], "+toWeb+
			"}, {match: [{gateways: [gw]}], "+toWeb+"}, {match: [{port: 80, uri: {prefix: /a}}], "+toWeb+"}, {"+toWeb+
			"}, {match: [{uri: {prefix: /b}}], "+toWeb+"}]"),
			Query{Host: "web", Port: 80, Path: "/a"}, true, []string{"by VirtualService a/v spec.http[2].match[0] ",
				"by VirtualService a/v spec.http[3] "}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := ingest.Options{Logger: slog.New(slog.DiscardHandler), ConfigDir: t.TempDir(), Namespace: "istio-system",
				Domain: "cluster.local", ClusterID: "Kubernetes", Limits: limits.Default()}
			must.Succeed(t, os.WriteFile(filepath.Join(o.ConfigDir, "mesh.yaml"), []byte(base+c.objects), 0o644))
			i, err := Read(t.Context(), o, catalog.Features())
			must.Succeed(t, err)
			if c.q.Source == "" {
				c.q.Source = "client.a"
			}
			w, err := i.Why(c.q)
			must.Succeed(t, err)
			said := w.texts()
			if w.Reached() != c.reached {
				t.Errorf("reached: %v\n%s", w.Reached(), strings.Join(said, "\n"))
			}
			for _, part := range c.says {
				if !slices.ContainsFunc(said, func(s string) bool { return strings.Contains(s, part) }) {
					t.Errorf("it does not say %q:\n%s", part, strings.Join(said, "\n"))
				}
			}
		})
	}
}

// texts returns all that an answer says.
func (w *Way) texts() []string {
	list := slices.Concat([]string{"status " + strconv.Itoa(w.Status), w.Reason}, w.Notes, w.Depends)
	if w.Log != nil {
		list = append(list, w.Log.Notes...)
	}
	for _, s := range w.Outbound.Steps {
		list = append(list, s.What+" "+s.Name+": "+s.Reason, "by "+s.From+" ")
		for _, l := range s.Lost {
			list = append(list, "not "+l.Name+", by "+l.From+" ")
		}
	}
	return list
}
