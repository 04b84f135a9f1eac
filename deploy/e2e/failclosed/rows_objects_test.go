package failclosed

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/api/jwks"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
)

// object returns an object of namespace a with the name input. spec is in YAML's flow style.
func object(group, kind, spec string) string {
	return fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: input, namespace: a}\nspec: %s\n", group, kind, spec)
}

const (
	security        = "security.istio.io/v1"
	networking      = "networking.istio.io/v1"
	networkingBeta  = "networking.istio.io/v1beta1"
	networkingAlpha = "networking.istio.io/v1alpha3"
	extensions      = "extensions.istio.io/v1alpha1"
	gatewayAPI      = "gateway.networking.k8s.io/v1"
)

// refusal is a route that answers instead of a service.
const refusal = "{match: [{uri: {prefix: /admin}}], directResponse: {status: 403}}"

// denyPatch is a patch that refuses all requests.
const denyPatch = `{applyTo: HTTP_FILTER, match: {context: SIDECAR_INBOUND}, patch: {operation: INSERT_FIRST, value: {
  name: deny, typed_config: {
    "@type": type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBAC,
    rules: {action: DENY, policies: {all: {permissions: [{any: true}], principals: [{any: true}]}}}}}}}`

// keySet returns a key set that accepts no token, as YAML in single quotes.
func keySet() string { return strings.ReplaceAll(jwks.AcceptsNone, "'", "''") }

// tokenRule returns a rule of a RequestAuthentication.
func tokenRule() string { return fmt.Sprintf("{issuer: i, jwks: '%s'}", keySet()) }

// objectRows are the kinds that authenticate, encrypt, hide or refuse, in the config directory.
func objectRows() []row {
	rule, answer, deny := tokenRule(), refusal, denyPatch
	bad := `{applyTo: HTTP_FILTER, match: {context: SIDECAR_INBOUND}, patch: {operation: INSERT_FIRST, value: {name: x, typed_config: ` +
		`{"@type": type.googleapis.com/foo.Bar}}}}`
	return []row{
		{
			input: "AuthorizationPolicy", good: policy, errors: []fault{
				{
					name: "a wrong value", content: object(security, "AuthorizationPolicy", "{selector: 1}"),
					said: "a/input: spec.selector", start: refused, running: kept,
				},
				{
					name: "an unknown field", content: object(security, "AuthorizationPolicy", "{rule: [{}]}"),
					said: "a/input: spec.rule", start: refused, running: kept,
				},
				{
					name: "a rule that cannot be read", said: "ipBlocks",
					content: object(security, "AuthorizationPolicy", `{rules: [{from: [{source: {ipBlocks: ["10.0.0.0/99"]}}]}]}`), start: refused,
					running: kept,
				},
			},
		},
		{
			input: "PeerAuthentication", good: object(security, "PeerAuthentication", "{mtls: {mode: STRICT}}"), errors: []fault{
				{name: "a wrong value", content: object(security, "PeerAuthentication", "{mtls: {mode: STRIKT}}"), said: "STRIKT", start: refused,
					running: kept},
				{
					name: "an unknown field", content: object(security, "PeerAuthentication", "{mtls: {mode: STRICT}, port: {}}"),
					said: "a/input: spec.port", start: refused, running: kept,
				},
			},
		},
		{
			input: "RequestAuthentication", good: object(security, "RequestAuthentication", "{jwtRules: ["+rule+"]}"), errors: []fault{
				{
					name: "a wrong rule beside a good one", content: object(security, "RequestAuthentication", "{jwtRules: ["+rule+", {jwks: x}]}"),
					said: `a/input: spec.jwtRules\[1\]`, start: refused, running: both,
				},
				{
					name: "a presence that does not exist", said: "REQUIRD", start: refused, running: both,
					content: object(security, "RequestAuthentication", "{jwtRules: ["+strings.TrimSuffix(rule, "}")+", presence: REQUIRD}]}"),
				},
			},
		},
		{
			input: "Sidecar", good: object(networking, "Sidecar", `{outboundTrafficPolicy: {mode: REGISTRY_ONLY}, egress: [{hosts: ["./*"]}]}`),
			errors: []fault{
				{
					name: "a wrong host", content: object(networking, "Sidecar",
						`{outboundTrafficPolicy: {mode: REGISTRY_ONLY}, egress: [{hosts: ["./*", "store"]}]}`),
					said: `a/input: spec.egress`, start: rest, running: rest,
				},
				{
					name: "a wrong value", said: `a/input: spec.inbound`, start: rest, running: rest, content: object(networking, "Sidecar",
						`{outboundTrafficPolicy: {mode: REGISTRY_ONLY}, egress: [{hosts: ["./*"]}], inboundConnectionPool: {tcp: {connectTimeout: 9600h}}}`),
				},
				{
					name: "a mode that does not exist", said: `a/input: spec.outbound`, start: closed, running: both,
					content: object(networking, "Sidecar", `{outboundTrafficPolicy: {mode: REGISTRY}, egress: [{hosts: ["./*"]}]}`),
				},
			},
		},
		{
			input: "DestinationRule with tls", good: object(networking, "DestinationRule",
				"{host: pay, trafficPolicy: {tls: {mode: SIMPLE, sni: pay.example}}}"),
			errors: []fault{
				{
					name: "a wrong value beside tls", said: "maxConnections", start: rest, running: rest, content: object(networking, "DestinationRule",
						"{host: pay, trafficPolicy: {tls: {mode: SIMPLE, sni: pay.example}, connectionPool: {tcp: {maxConnections: -1}}}}"),
				},
				{
					name: "a mode that does not exist", said: "a/input: spec.trafficPolicy.tls.mode", start: closed, running: both,
					content: object(networking, "DestinationRule", "{host: pay, trafficPolicy: {tls: {mode: SIMPEL, sni: pay.example}}}"),
				},
				{
					name: "CA certificates in no namespace", said: "a/input: spec.trafficPolicy.tls.caCertCredentialName", start: closed,
					running: both, content: object(networking, "DestinationRule",
						"{host: pay, trafficPolicy: {tls: {mode: SIMPLE, sni: pay.example, caCertCredentialName: \"configmap://roots\"}}}"),
				},
				{
					name: "labels of a wrong type", said: "a/input: metadata.labels", start: rest, running: rest, content: strings.Replace(
						object(networking, "DestinationRule", "{host: pay, trafficPolicy: {tls: {mode: SIMPLE, sni: pay.example}}}"), "name: input",
						"name: input, labels: 1", 1),
				},
				{
					name: "no name", said: "metadata.nmae", start: refused, running: kept, content: strings.Replace(
						object(networking, "DestinationRule", "{host: pay, trafficPolicy: {tls: {mode: SIMPLE, sni: pay.example}}}"), "name: input",
						"nmae: input", 1),
				},
			},
		},
		{
			input: "VirtualService that answers", good: object(networking, "VirtualService",
				"{hosts: [pay], http: ["+answer+", {route: [{destination: {host: pay}}]}]}"),
			errors: []fault{
				{
					name: "a wrong value in another route", said: "a/input: spec.http", start: rest, running: rest,
					content: object(networking, "VirtualService",
						"{hosts: [pay], http: ["+answer+", {route: [{destination: {host: pay}}], retries: {attempts: 2, retryOn: nonsense-word}}]}"),
				},
				{
					name: "a wrong value in the answer", said: "a/input: spec.http", start: closed, running: both,
					content: object(networking, "VirtualService",
						"{hosts: [pay], http: [{match: [{uri: {prefix: /admin}}], directResponse: {status: 4030}}, {route: [{destination: {host: pay}}]}]}"),
				},
			},
		},
		{
			input: "EnvoyFilter", good: object(networkingAlpha, "EnvoyFilter", "{configPatches: ["+deny+"]}"), errors: []fault{
				{
					name: "a patch of an unknown type", said: "a/input: spec.configPatches", start: rest, running: rest,
					content: object(networkingAlpha, "EnvoyFilter", "{configPatches: ["+bad+", "+deny+"]}"),
				},
			},
		},
		{
			input: "WasmPlugin that fails closed", files: map[string]string{"x.wasm": string(suite.WasmModule())},
			good: wasm("file://DIR/x.wasm", "failStrategy: FAIL_CLOSE"), errors: []fault{
				{name: "a module that is not there", content: wasm("file://DIR/nowhere.wasm", "failStrategy: FAIL_CLOSE"), silent: true, start: rest,
					running: rest},
				{name: "a wrong value", content: wasm("file://DIR/x.wasm", "failStrategy: FAIL_CLOZE"), said: "failStrategy", start: rest,
					running: both},
				{name: "an unknown field", content: wasm("file://DIR/x.wasm", "failStrategy: FAIL_CLOSE, unheardOf: 1"), said: "unheardOf", start: rest,
					running: rest},
			},
		},
		{
			input: "TrafficExtension", good: lua(script, "phase: AUTHN"), errors: []fault{
				{name: "a script that does not load", content: lua("function envoy_on_request(", "phase: AUTHN"), said: "a/input", start: closed,
					running: both},
				{name: "a wrong value", content: lua(script, "phase: AUTHNN"), said: "phase", start: rest, running: both},
				{name: "an unknown field", content: lua(script, "phase: AUTHN, unheardOf: 1"), said: "unheardOf", start: rest, running: rest},
			},
		},
	}
}

const script = "function envoy_on_request(h) h:respond({[':status'] = '403'}, '') end"

// lua returns a TrafficExtension with a script.
func lua(code, more string) string {
	return object(extensions, "TrafficExtension", fmt.Sprintf("{lua: {inlineCode: %q}, %s}", code, more))
}

// wasm returns a WasmPlugin.
func wasm(url, more string) string {
	return object(extensions, "WasmPlugin", fmt.Sprintf("{url: %q, %s}", url, more))
}

// policyRows are objects that need other objects.
func policyRows() []row {
	backend := func(spec string) string {
		return object("gateway.networking.k8s.io/v1", "BackendTLSPolicy", "{targetRefs: [{group: '', kind: Service, name: pay}], "+spec+"}")
	}
	const verified = "validation: {hostname: pay.example, wellKnownCACertificates: System}"
	const missing = "validation: {hostname: pay.example, caCertificateRefs: [{group: '', kind: ConfigMap, name: missing}]}"
	keys := keySet()
	request := func(source string) string {
		return object(security, "RequestAuthentication", "{jwtRules: [{issuer: i, "+source+"}]}") + "---\n" +
			object(security, "AuthorizationPolicy",
				`{rules: [{from: [{source: {requestPrincipals: ["i/*"]}}]}]}`)
	}
	entry := func(spec string) string {
		return object(networking, "ServiceEntry", "{hosts: [ext.example], location: MESH_EXTERNAL, resolution: STATIC, endpoints: [{address: "+
			"192.0.2.1}], ports: [{number: 80, name: http, protocol: HTTP}], "+spec+"}")
	}
	const encrypts = `apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: ext, namespace: a}
spec: {host: ext.example, trafficPolicy: {tls: {mode: SIMPLE, caCertificates: /etc/ca.pem}}}
---
`
	return []row{
		{
			input: "BackendTLSPolicy", good: backend(verified), errors: []fault{
				{name: "a ConfigMap that is not there", content: backend(missing), said: "missing", start: closed, running: closed},
				{name: "an unknown field", content: backend(verified + ", unheardOf: 1"), said: "unheardOf", start: rest, running: rest},
				{
					name: "a field beside the spec", said: "validation", start: closed, running: kept,
					content: strings.Replace(strings.TrimSuffix(backend(verified), "}\n"), ", validation", "}\nvalidation", 1) + "\n",
				},
			},
		},
		{
			input: "key sets of a RequestAuthentication", good: request("jwks: '" + keys + "'"),
			open: object(security, "AuthorizationPolicy", "{rules: [{}]}"), errors: []fault{
				{name: "a server that does not answer", content: request("jwksUri: 'http://127.0.0.1:1/keys'"), said: "127.0.0.1:1", start: closed,
					running: closed},
				{name: "a key set without a key", content: request("jwks: '{\"keys\": []}'"), said: "a/input", start: closed, running: closed},
			},
		},
		{
			input: "ServiceEntry whose names are verified", world: encrypts, good: entry("subjectAltNames: [a.example]"),
			open: entry("exportTo: ['*']"), errors: []fault{
				{name: "an unknown field", content: entry("subjectAltNames: [a.example], unheardOf: 1"), said: "unheardOf", start: rest, running: rest},
			},
		},
	}
}

// gatewayRows are the inputs that protect the listeners of a gateway.
func gatewayRows() []row {
	gateway := func(tls, more string) string {
		return object(networking, "Gateway", "{selector: {app: gateway}, servers: [{port: {number: 8443, name: https, protocol: HTTPS}, "+
			"hosts: [a.example], tls: "+tls+"}"+more+"]}")
	}
	const files, root = "serverCertificate: /etc/c.pem, privateKey: /etc/k.pem", ", caCertificates: /etc/ca.pem"
	good := gateway("{mode: MUTUAL, "+files+root+"}", "")
	grant := func(to string) string {
		return "apiVersion: " + gatewayAPI + "\nkind: ReferenceGrant\nmetadata: {name: input, namespace: b}\n" +
			"spec: {from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: a}], to: [{group: '', kind: Service" + to + "}]}\n"
	}
	const route = `apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: gw, namespace: a}
spec:
  gatewayClassName: istio
  addresses: [{type: Hostname, value: gateway.a.svc.cluster.local}]
  listeners: [{name: http, port: 8080, protocol: HTTP}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: route, namespace: a}
spec: {parentRefs: [{name: gw}], hostnames: [a.example], rules: [{backendRefs: [{name: other, namespace: b, port: 80}]}]}
---
`
	return []row{{
		input: "ReferenceGrant for another Service", gateway: true, world: route, good: grant(", name: pay"), open: grant(""), errors: []fault{
			{name: "a wrong value", content: grant(", name: [pay]"), said: "name", start: closed, running: closed},
			{name: "an unknown field", content: grant(", nam: pay"), said: "nam", start: closed, running: closed},
		},
	}, {
		input: "Gateway that requires client certificates", gateway: true, good: good, open: gateway("{mode: SIMPLE, "+files+"}", ""),
		errors: []fault{

			{
				name: "a wrong host in another server", said: "b_c", start: rest, running: rest,
				content: gateway("{mode: MUTUAL, "+files+root+"}", `, {port: {number: 8080, name: http, protocol: HTTP}, hosts: ["b_c example"]}`),
			},

			{name: "a mode that does not exist", said: "MUTAUL", start: refused, running: both,
				content: gateway("{mode: MUTAUL, "+files+root+"}", "")},
			{
				name: "an unknown field of tls", said: "caCertificate", start: refused, running: both,
				content: gateway("{mode: MUTUAL, "+files+", caCertificate: /etc/ca.pem}", ""),
			},
		},
	}}
}

// meshRows are the ways in which a server gets its mesh configuration.
func meshRows() []row {
	const good = "outboundTrafficPolicy: {mode: REGISTRY_ONLY}\n"
	config := meshConfigMap
	return []row{
		{
			input: "the mesh configuration, by --meshConfig", file: "config/mesh.yaml", good: good, open: "{}\n",
			args: func(dir string) []string { return []string{"--meshConfig", filepath.Join(dir, "config", "mesh.yaml")} },
			errors: []fault{

				{name: "unreadable", spoil: unreadable, said: "permission denied", start: refused, running: kept},

				{name: "a link that leads nowhere", spoil: dangling, said: "mesh.yaml", start: refused, running: kept, silent: true},
				{name: "a volume without ..data", spoil: noData, said: "mesh.yaml", start: refused, running: kept, silent: true},

				{name: "a syntax error", content: good + "{", said: "mesh.yaml", start: refused, running: kept},

				{name: "an enumeration's value that does not exist", content: good + "accessLogEncoding: json\n", said: "accessLogEncoding",
					start: rest, running: rest},
				{name: "a mode of outboundTrafficPolicy that does not exist", content: "outboundTrafficPolicy: {mode: REGISTRY}\n",
					said: "outboundTrafficPolicy", waits: "mesh configuration that can be used", start: refused, running: kept},

				{name: "an unknown field", content: good + "unheardOf: 1\n", said: "unheardOf", start: rest, running: rest},

				{
					name: "two providers of one name", said: "extensionProviders", start: rest, running: rest,
					content: good + "extensionProviders: [{name: a, envoyFileAccessLog: {path: /dev/stdout}}, {name: a, envoyFileAccessLog: {path: " +
						"/tmp/b}}]\n",
				},
			},
		},
		{
			input: "the mesh configuration, by a ConfigMap in the config directory", good: config(good), open: config("{}\n"), errors: []fault{
				{name: "a syntax error after the text", content: config(good) + "  other: {\n", said: "input.yaml", start: refused, running: kept},

				{name: "an enumeration's value that does not exist", content: config(good + "accessLogEncoding: json\n"), said: "accessLogEncoding",
					start: rest, running: rest},
				{name: "a mode of outboundTrafficPolicy that does not exist", content: config("outboundTrafficPolicy: {mode: REGISTRY}\n"),
					said: "outboundTrafficPolicy", waits: "mesh configuration that can be used", start: refused, running: kept},

				{name: "an unknown field", content: config(good + "unheardOf: 1\n"), said: "unheardOf", start: rest, running: rest},
			},
		},
	}
}

// networkRows are the networks of the mesh. Endpoints behind their gateways must not be reached directly.
func networkRows() []row {
	const good = "networks:\n  net2:\n    gateways: [{address: 192.0.2.9, port: 15443}]\n"
	return []row{{
		input: "the networks, by --networksConfig", file: "networks/meshNetworks", good: good, open: "networks: {}\n",
		world: strings.ReplaceAll(suite.PodYAML("far", "a", "10.20.0.1", "", "topology.istio.io/network: net2, "+suite.Sidecar), "---\n", "") +
			"---\n" +
			suite.ServiceYAML("far", "a", "10.98.0.9"),
		args: func(dir string) []string {
			return []string{"--networksConfig", filepath.Join(dir, "networks", "meshNetworks")}
		},
		errors: []fault{
			{name: "unreadable", spoil: unreadable, said: "permission denied", start: refused, running: kept},
			{name: "a link that leads nowhere", spoil: dangling, said: "meshNetworks", start: refused, running: kept, silent: true},
			{name: "a volume without ..data", spoil: noData, said: "meshNetworks", start: refused, running: kept, silent: true},
			{name: "a syntax error", content: good + "{", said: "meshNetworks", start: refused, running: kept},
			{name: "a wrong value", content: strings.Replace(good, "15443", "x", 1), said: "meshNetworks", start: refused, running: kept},
			{name: "an unknown field", content: good + "    unheardOf: 1\n", said: "unheardOf", waits: "mesh networks that can be used",
				start: refused, running: kept},
		},
	}}
}

// clusterRows are objects of an API server with the mesh configuration. remove removes an input from the API server. It
// is nil for the document.
func clusterRows(remove func(*testing.T, row)) []row {
	const good = "outboundTrafficPolicy: {mode: REGISTRY_ONLY}\n"
	faults := func(of func(text string) string) []fault {
		return []fault{
			{
				name: "a syntax error", content: of(good + "{"), said: "the mesh configuration has errors",
				waits: "mesh configuration that can be used",
				start: refused, running: kept,
			},
			{
				name: "a mode of outboundTrafficPolicy that does not exist", content: of("outboundTrafficPolicy: {mode: REGISTRY}\n"),
				said: "outboundTrafficPolicy", waits: "mesh configuration that can be used", start: refused, running: kept,
			},
			{
				name: "another key instead of mesh", content: strings.Replace(of(good), "  mesh:", "  mesh.yaml:", 1), said: "no key mesh",
				waits: "mesh configuration that can be used", start: refused, running: kept,
			},
			{name: "an unknown field", content: of(good + "unheardOf: 1\n"), said: "unheardOf", start: rest, running: rest},
		}
	}
	shared := func(text string) string {
		return strings.Replace(meshConfigMap(text), "name: istio,", "name: shared,", 1)
	}
	return []row{
		{
			input: "the mesh configuration, by a ConfigMap of an API server", good: meshConfigMap(good), open: meshConfigMap("{}\n"),
			errors: faults(meshConfigMap),
		},
		{
			input: "the mesh configuration, by the ConfigMap that --sharedMeshConfig names", world: meshConfigMap("{}\n") + "---\n",
			good: shared(good), open: shared("{}\n"), errors: append(faults(shared), fault{
				name: "missing", spoil: func(t *testing.T, _ string) { t.Helper(); remove(t, row{good: shared(good)}) },
				said: "istio-system/shared is missing", start: refused, running: kept,
			}),
			args: func(string) []string { return []string{"--sharedMeshConfig", "shared"} },
		},
	}
}

// meshConfigMap returns the ConfigMap of the mesh configuration.
func meshConfigMap(text string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: istio, namespace: istio-system}\ndata:\n  mesh: |\n    " +
		strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n    ") + "\n"
}

// allRows returns the rows of the document, in order.
func allRows() []row {
	return slices.Concat(fileRows(), objectRows(), policyRows(), gatewayRows(), meshRows(), clusterRows(nil), networkRows(), sourceRows(nil),
		remoteRows(nil), caRows(), caSecretRows(nil), secretRows(), apiSecretRows(nil), injectionRows(), apiRows())
}
