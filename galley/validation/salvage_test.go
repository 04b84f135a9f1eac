package validation

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	securityv1 "istio.io/api/security/v1"

	"github.com/istiod-lite/istiod-lite/api/jwks"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
)

// inStore returns the document of an object as an API server has it. spec is YAML.
func inStore(t *testing.T, kind *kinds.Kind, spec string) Document {
	t.Helper()
	body, err := yaml.YAMLToJSON([]byte(spec))
	if err != nil {
		t.Fatalf("%v: %s", err, spec)
	}
	return Object(limits.Default(), kind, []byte(`{"metadata": {"name": "o", "namespace": "store"}, "spec": `+string(body)+`}`))
}

const someKeys = `jwks: '{"keys": [{"kty": "oct", "k": "YQ"}]}'`

// TestOneWrongField has an object of each kind with faults, and what of it is in force: without the wrong field alone,
// or closed.
func TestOneWrongField(t *testing.T) {
	noServer := `{mode: SIMPLE, credentialName: "invalid://"}`
	nobody := `jwks: '` + jwks.AcceptsNone + `'`
	for _, c := range []struct {
		kind          *kinds.Kind
		written, kept string // kept is "" if nothing is in force
	}{
		// A wrong number beside what restricts.
		{kinds.Sidecar, `{outboundTrafficPolicy: {mode: REGISTRY_ONLY}, egress: [{hosts: ["./*", "store"]}]}`,
			`{outboundTrafficPolicy: {mode: REGISTRY_ONLY}, egress: [{hosts: ["./*"]}]}`},
		{
			kinds.DestinationRule, `{host: a.b, trafficPolicy: {tls: {mode: SIMPLE, sni: c.d}, connectionPool: {tcp: {maxConnections: -1, ` +
				`connectTimeout: 1s}}}}`,
			`{host: a.b, trafficPolicy: {tls: {mode: SIMPLE, sni: c.d}, connectionPool: {tcp: {connectTimeout: 1s}}}}`,
		},
		{
			kinds.VirtualService, `{hosts: [a.b], http: [{match: [{uri: {prefix: /admin}}], directResponse: {status: 403}}, {route: ` +
				`[{destination: {host: a.b}}], retries: {attempts: 2, retryOn: nonsense-word}}]}`,
			`{hosts: [a.b], http: [{match: [{uri: {prefix: /admin}}], directResponse: {status: 403}}, {route: [{destination: {host: a.b}}], ` +
				`retries: {attempts: 2}}]}`,
		},
		{
			kinds.DestinationRule, `{host: a.b, trafficPolicy: {tls: {mode: SIMPLE, caCertificates: /c, subjectAltNames: [x]}, connectionPool: ` +
				`{http: {idleTimeout: 87600h}}}}`,
			`{host: a.b, trafficPolicy: {tls: {mode: SIMPLE, caCertificates: /c, subjectAltNames: [x]}, connectionPool: {http: {}}}}`,
		},
		{
			kinds.Sidecar, `{egress: [{hosts: ["~/*"]}], outboundTrafficPolicy: {mode: REGISTRY_ONLY}, inboundConnectionPool: {tcp: ` +
				`{connectTimeout: 9600h}}}`,
			`{egress: [{hosts: ["~/*"]}], outboundTrafficPolicy: {mode: REGISTRY_ONLY}, inboundConnectionPool: {tcp: {}}}`,
		},
		{
			kinds.VirtualService, `{hosts: [a.b], http: [{match: [{uri: {prefix: /admin}}], directResponse: {status: 403}}, {timeout: 9600h, ` +
				`route: [{destination: {host: a.b}}]}]}`,
			`{hosts: [a.b], http: [{match: [{uri: {prefix: /admin}}], directResponse: {status: 403}}, {route: [{destination: {host: a.b}}]}]}`,
		},

		// DestinationRules with TLS settings.
		{kinds.DestinationRule, `{host: a.b, trafficPolicy: {tls: {mode: SIMPLE, sni: ` + strings.Repeat("a", 300) + `}}}`,
			`{host: a.b, trafficPolicy: {tls: {mode: SIMPLE, sni: unusable.invalid}}}`},
		{kinds.DestinationRule, `{host: a.b, trafficPolicy: {tls: {mode: SIMPLE}, retryBudget: {budgetInterval: 0.0001s}}}`,
			`{host: a.b, trafficPolicy: {tls: {mode: SIMPLE}, retryBudget: {}}}`},
		{kinds.DestinationRule, `{host: a.b, trafficPolicy: {tls: {mode: SIMPLE}, loadBalancer: {consistentHash: {maglev: {tableSize: "1"}}}}}`,
			`{host: a.b, trafficPolicy: {tls: {mode: SIMPLE}, loadBalancer: {consistentHash: {}}}}`},
		{kinds.DestinationRule, `{host: a.b, trafficPolicy: {tls: {mode: ISTIO_MUTUAL, insecureSkipVerify: true, caCertificates: /c}}}`,
			`{host: a.b, trafficPolicy: {tls: {mode: ISTIO_MUTUAL, caCertificates: /c}}}`},
		{kinds.DestinationRule, `{host: a.b, trafficPolicy: {tls: {mode: SIMPLE}, portLevelSettings: [{tls: {mode: DISABLE}}]}}`,
			`{host: a.b, trafficPolicy: {tls: {mode: SIMPLE}}}`},
		{kinds.DestinationRule, `{host: a.b, exportTo: [".", "*"], trafficPolicy: {tls: {mode: SIMPLE}}}`,
			`{host: a.b, exportTo: ["*"], trafficPolicy: {tls: {mode: SIMPLE}}}`},
		{kinds.DestinationRule, `{host: a.b, exportTo: ["**"], trafficPolicy: {tls: {mode: DISABLE}}}`,
			`{host: a.b, exportTo: ["~"], trafficPolicy: {tls: {mode: DISABLE}}}`},
		{kinds.DestinationRule, `{host: a.b, exportTo: ["/", "~", store, "(", ".", store], trafficPolicy: {tls: {mode: SIMPLE}}}`,
			`{host: a.b, exportTo: [store, "."], trafficPolicy: {tls: {mode: SIMPLE}}}`},
		{kinds.VirtualService, `{hosts: [a.b], exportTo: ["x\ty"], http: [{directResponse: {status: 403}}]}`,
			`{hosts: [a.b], exportTo: ["~"], http: [{directResponse: {status: 403}}]}`},
		{kinds.DestinationRule, `{host: a.b, exportTo: ["*", "*a*"], trafficPolicy: {tls: {mode: SIMPLE}}}`,
			`{host: a.b, exportTo: ["*"], trafficPolicy: {tls: {mode: SIMPLE}}}`},
		{kinds.DestinationRule, `{host: a.b, exportTo: [{a: b}], trafficPolicy: {tls: {mode: SIMPLE}}}`,
			`{host: a.b, exportTo: ["*"], trafficPolicy: {tls: {mode: SIMPLE}}}`},
		{kinds.DestinationRule, `{host: a.b, trafficPolicy: {tls: {mode: SIMPLE}}, subsets: [{labels: {v: "1"}}]}`,
			`{host: a.b, trafficPolicy: {tls: {mode: SIMPLE}}}`},
		{kinds.DestinationRule, `{host: a.b, trafficPolicy: {tls: {mode: SIMPLE}}, subsets: [{name: a}, {name: a}]}`,
			`{host: a.b, trafficPolicy: {tls: {mode: SIMPLE}}, subsets: [{name: a}]}`},
		{kinds.DestinationRule, `{host: a.b, trafficPolicy: {tls: {mode: SIMPLE}, loadBalancer: {localityLbSetting: {distribute: [{from: a, ` +
			`to: {b: 50}}]}}}}`, `{host: a.b, trafficPolicy: {tls: {mode: SIMPLE}, loadBalancer: {localityLbSetting: {}}}}`},
		{kinds.DestinationRule, `{host: a.b, trafficPolicy: {tls: {mode: SIMPLE}, outlierDetection: {maxEjectionPercent: 200}}}`,
			`{host: a.b, trafficPolicy: {tls: {mode: SIMPLE}, outlierDetection: {}}}`},
		{kinds.DestinationRule, `{host: a.b, trafficPolicy: {tls: {mode: SIMPLE, credentialName: "configmap://x"}}}`,
			`{host: a.b, trafficPolicy: {tls: ` + noServer + `}}`},
		{kinds.DestinationRule, `{host: a.b, trafficPolicy: {tls: {mode: NEWER}}}`, `{host: a.b, trafficPolicy: {tls: ` + noServer + `}}`},
		{kinds.DestinationRule, `{host: a.b, trafficPolicy: {tls: {mode: MUTUAL}}}`, `{host: a.b, trafficPolicy: {tls: ` + noServer + `}}`},
		{kinds.DestinationRule, `{host: a.b, trafficPolicy: 1}`, `{host: a.b, trafficPolicy: {tls: ` + noServer + `}}`},
		{kinds.DestinationRule, `{host: a_b, trafficPolicy: {tls: {mode: SIMPLE}}}`, ""},

		// Sidecars whose hosts cannot be read.
		{kinds.Sidecar, `{egress: [{hosts: ["./a*.com"]}]}`, `{egress: [{hosts: ["~/*"]}]}`},
		{kinds.Sidecar, `{egress: [{hosts: [" ./*"]}]}`, `{egress: [{hosts: ["~/*"]}]}`},
		{kinds.Sidecar, `{egress: [{hosts: ["*"]}]}`, `{egress: [{hosts: ["~/*"]}]}`},
		{kinds.Sidecar, `{egress: [{hosts: []}]}`, `{egress: [{hosts: ["~/*"]}]}`},
		{kinds.Sidecar, `{egress: [{}]}`, `{egress: [{hosts: ["~/*"]}]}`},
		{kinds.Sidecar, `{egress: 1}`, `{egress: [{hosts: ["~/*"]}]}`},
		{kinds.Sidecar, `{outboundTrafficPolicy: {mode: NEWER}}`, `{outboundTrafficPolicy: {mode: REGISTRY_ONLY}}`},

		// Sidecars with a listener without a port that is not the last one.
		{
			kinds.Sidecar, `{egress: [{hosts: ["./a"]}, {port: {number: 80, name: a, protocol: HTTP}, hosts: ["./*"]}]}`,
			`{egress: [{port: {number: 80, name: a, protocol: HTTP}, hosts: ["./*"]}, {hosts: ["./a"]}]}`,
		},
		{kinds.Sidecar, `{egress: [{hosts: ["./a"]}, {hosts: ["./b"]}]}`, `{egress: [{hosts: ["./a"]}]}`},
		{kinds.Sidecar, `{egress: [{hosts: ["./a/", "o/b"]}, {hosts: ["./*"]}]}`, `{egress: [{hosts: ["o/b"]}]}`},
		{kinds.Sidecar, `{egress: [{hosts: ["*/*", "~b/*"]}]}`, `{egress: [{hosts: ["*/*", "~b/*"]}]}`},
		{kinds.Sidecar, `{egress: [{hosts: ["*/*", "./a*.com"]}]}`, `{egress: [{hosts: ["*/*"]}]}`},
		{kinds.Sidecar, `{egress: [{hosts: ["*/*", "~b/a/"]}]}`, `{egress: [{hosts: ["*/*", "~/*"]}]}`},
		{kinds.Sidecar, `{egress: [{hosts: ["*/*", "~b!/*"]}]}`, `{egress: [{hosts: ["*/*", "~/*"]}]}`},
		{kinds.Sidecar, `{egress: [{hosts: ["*/*", "~b"]}]}`, `{egress: [{hosts: ["*/*", "~/*"]}]}`},
		{kinds.Sidecar, `{egress: [{hosts: ["./a/"]}, {hosts: ["./*"]}]}`, `{egress: [{hosts: ["~/*"]}]}`},
		{
			kinds.Sidecar, `{egress: [{hosts: ["./a"]}, {hosts: ["./b"]}, {port: {number: 80, name: a, protocol: HTTP}, hosts: ["./*"]}]}`,
			`{egress: [{port: {number: 80, name: a, protocol: HTTP}, hosts: ["./*"]}, {hosts: ["./a"]}]}`,
		},

		// Sidecars with an ingress listener without a port.
		{
			kinds.Sidecar, `{ingress: [{port: {name: a, protocol: HTTP}}]}`,
			`{ingress: [{port: {number: 15001, name: unusable, protocol: TCP}, defaultEndpoint: "unix:///dev/null/unusable"}]}`,
		},
		{kinds.Sidecar, `{ingress: [{port: {name: a, protocol: HTTP}}, {port: {number: 80, name: b, protocol: HTTP}}]}`,
			`{ingress: [{port: {number: 80, name: b, protocol: HTTP}}]}`},

		// EnvoyFilters whose match does not name the filter. The first operation does not read the name.
		{
			kinds.EnvoyFilter, `{configPatches: [{applyTo: HTTP_FILTER, match: {listener: {filterChain: {filter: {name: ` + connectionManager +
				`, subFilter: {}}}}}, patch: {operation: INSERT_FIRST, value: {name: a}}}]}`,
			`{configPatches: [{applyTo: HTTP_FILTER, match: {listener: {filterChain: {filter: {name: ` + connectionManager +
				`, subFilter: {}}}}}, patch: {operation: INSERT_FIRST, value: {name: a}}}]}`,
		},
		{
			kinds.EnvoyFilter, `{configPatches: [{applyTo: NETWORK_FILTER, match: {listener: {filterChain: {filter: {}}}}, patch: ` +
				`{operation: ADD, value: {name: a}}}, {applyTo: NETWORK_FILTER, match: {listener: {filterChain: {filter: {}}}}, patch: ` +
				`{operation: INSERT_AFTER, value: {name: b}}}]}`,
			`{configPatches: [{applyTo: NETWORK_FILTER, match: {listener: {filterChain: {filter: {}}}}, patch: {operation: ADD, value: ` +
				`{name: a}}}]}`,
		},

		// Sidecars with an unknown protocol of an ingress listener.
		{kinds.Sidecar, `{ingress: [{port: {number: 80, name: a, protocol: HTPP}, defaultEndpoint: "127.0.0.1:80"}]}`,
			`{ingress: [{port: {number: 80, name: a}, defaultEndpoint: "127.0.0.1:80"}]}`},
		{
			kinds.Sidecar, `{ingress: [{port: {number: 80, name: a, protocol: HTPS}, defaultEndpoint: "127.0.0.1:80", tls: {mode: SIMPLE, ` +
				`serverCertificate: /c, privateKey: /k}}]}`,
			`{ingress: [{port: {number: 80, name: a}, defaultEndpoint: "unix:///dev/null/unusable", tls: {mode: MUTUAL, credentialName: ` +
				`"invalid://"}}]}`,
		},

		// Routes.
		{kinds.VirtualService, `{hosts: [a.b], http: [{route: [{destination: {host: "b_c d"}}]}]}`,
			`{hosts: [a.b], http: [{directResponse: {status: 503}}]}`},
		{kinds.VirtualService, `{hosts: [a.b, "a:b"], http: [{directResponse: {status: 999}}]}`,
			`{hosts: [a.b], http: [{directResponse: {status: 503}}]}`},
		{
			kinds.VirtualService, `{hosts: [a.b], http: [{match: [{uri: {regex: "("}, method: {exact: GET}}], directResponse: {status: 403}}, ` +
				`{match: [{headers: {"x y": {exact: a}}}], route: [{destination: {host: a.b}}]}, {route: [{destination: {host: a.b}}]}]}`,
			`{hosts: [a.b], http: [{match: [{method: {exact: GET}}], directResponse: {status: 403}}, {route: [{destination: {host: a.b}}]}]}`,
		},
		{
			kinds.VirtualService, `{hosts: [a.b], http: [{route: [{destination: {host: a.b}}], headers: {request: {set: {x-user: "%BAD%"}}}}]}`,
			`{hosts: [a.b], http: [{route: [{destination: {host: a.b}}], headers: {request: {set: {}, remove: [x-user]}}}]}`,
		},
		{kinds.VirtualService, `{hosts: ["*"], http: [{directResponse: {status: 403}}]}`, ""},

		// Parts of routes that can be left out by themselves.
		{
			kinds.VirtualService, `{hosts: [a.b], http: [{route: [{destination: {host: a.b}}], headers: {request: {add: {"x y": a, x-z: b}, ` +
				`remove: [x-a, "x b"]}}}]}`,
			`{hosts: [a.b], http: [{route: [{destination: {host: a.b}}], headers: {request: {add: {x-z: b}, remove: [x-a]}}}]}`,
		},
		{
			kinds.VirtualService, `{hosts: [a.b], http: [{route: [{destination: {host: a.b}}], headers: {request: {remove: ["x b"]}}}]}`,
			`{hosts: [a.b], http: [{route: [{destination: {host: a.b}}], headers: {request: {}}}]}`,
		},
		{kinds.VirtualService, `{hosts: [a.b], http: [{route: [{destination: {host: a.b}}], headers: {request: {remove: x-a}}}]}`,
			`{hosts: [a.b], http: [{directResponse: {status: 503}}]}`},
		{kinds.VirtualService, `{hosts: [a.b], http: [{directResponse: {status: 403, body: {string: 1}}}]}`,
			`{hosts: [a.b], http: [{directResponse: {status: 403, body: {}}}]}`},
		{kinds.VirtualService, `{hosts: [a.b], http: [{redirect: {uri: /a, redirectCode: 999}}]}`,
			`{hosts: [a.b], http: [{redirect: {uri: /a}}]}`},

		// Servers.
		{
			kinds.Gateway, `{servers: [{hosts: [a.b], port: {number: 80, name: a, protocol: HTTP}}, {hosts: ["b_c example"], port: {number: 81, ` +
				`name: b, protocol: HTTP}}]}`,
			`{servers: [{hosts: [a.b], port: {number: 80, name: a, protocol: HTTP}}]}`,
		},
		{kinds.Gateway, `{servers: [{hosts: [a.b, "b c"], port: {number: 80, name: a, protocol: HTTP}}]}`,
			`{servers: [{hosts: [a.b], port: {number: 80, name: a, protocol: HTTP}}]}`},
		{
			kinds.Gateway, `{servers: [{hosts: [a.b], port: {number: 80, name: a, protocol: HTTP}, tls: {httpsRedirect: true, mode: PASSTHROUGH}}]}`,
			`{servers: [{hosts: [a.b], port: {number: 80, name: a, protocol: HTTP}, tls: {httpsRedirect: true}}]}`,
		},
		{kinds.Gateway, `{servers: [{hosts: [a.b], port: {number: 90, name: a, protocol: TCP}, tls: {}}]}`, ""},
		{
			kinds.Gateway, `{servers: [{hosts: ["*.b"], port: {number: 443, name: a, protocol: HTTPS}, tls: {mode: SIMPLE, credentialName: c}}, ` +
				`{hosts: [a.b], port: {number: 443, name: b, protocol: HTTPS}, tls: {mode: NEWER}}]}`,
			`{servers: [{hosts: ["*.b"], port: {number: 443, name: a, protocol: HTTPS}, tls: {mode: SIMPLE, credentialName: c}}, {hosts: [a.b], ` +
				`port: {number: 443, name: b, protocol: HTTPS}, tls: {mode: MUTUAL, credentialName: "invalid://"}}]}`,
		},
		{
			kinds.Gateway, `{servers: [{bind: 10.0.0.1, hosts: ["*.b"], port: {number: 443, name: a, protocol: HTTPS}, tls: {mode: SIMPLE, ` +
				`credentialName: c}}, {bind: 10.0.0.1, hosts: [a.b], port: {number: 443, name: b, protocol: HTTPS}, tls: {mode: NEWER}}]}`,
			`{servers: [{bind: 10.0.0.1, hosts: ["*.b"], port: {number: 443, name: a, protocol: HTTPS}, tls: {mode: SIMPLE, credentialName: c}}, ` +
				`{bind: 10.0.0.1, hosts: [a.b], port: {number: 443, name: b, protocol: HTTPS}, tls: {mode: MUTUAL, credentialName: "invalid://"}}]}`,
		},
		{kinds.Gateway, `{servers: [{hosts: [a.b], port: {number: 443, name: a, protocol: HTTPS}, tls: {mode: SIMPLE, credentialNames: [a, b, ` +
			`c]}}]}`, ""},

		// Patches.
		{
			kinds.EnvoyFilter, `{configPatches: [{applyTo: HTTP_FILTER, patch: {operation: INSERT_BEFORE, value: {name: a, typed_config: ` +
				`{"@type": type.googleapis.com/foo.Bar}}}}, {applyTo: HTTP_FILTER, patch: {operation: INSERT_FIRST, value: {name: b}}}, {applyTo: ` +
				`HTTP_FILTER, patch: {operation: REMOVE}}]}`,
			`{configPatches: [{applyTo: HTTP_FILTER, patch: {operation: INSERT_FIRST, value: {name: b}}}]}`,
		},
		{ // a version that cannot be read: a filter is inserted for each version, and none is removed
			kinds.EnvoyFilter, `{configPatches: [{applyTo: HTTP_FILTER, match: {proxy: {proxyVersion: "(?!1)"}}, patch: {operation: INSERT_FIRST, ` +
				`value: {name: a}}}, {applyTo: CLUSTER, match: {proxy: {proxyVersion: "("}}, patch: {operation: REMOVE}}, {applyTo: ` +
				`HTTP_FILTER, patch: {operation: REMOVE}}]}`,
			`{configPatches: [{applyTo: HTTP_FILTER, match: {proxy: {}}, patch: {operation: INSERT_FIRST, value: {name: a}}}]}`,
		},

		// Tokens.
		{
			kinds.RequestAuthentication, `{jwtRules: [{issuer: i, ` + someKeys +
				`, fromHeaders: [{name: x-tok}], outputPayloadToHeader: x-payload, ` +
				`outputClaimToHeaders: [{header: x-user, claim: sub}]}, {issuer: j, ` + someKeys + `, fromHeaders: [{name: "x a"}]}]}`,
			`{jwtRules: [{issuer: i, ` + someKeys + `, fromHeaders: [{name: x-tok}], outputPayloadToHeader: x-payload, outputClaimToHeaders: ` +
				`[{header: x-user, claim: sub}]}, {issuer: j, ` + nobody + `, fromHeaders: [{name: unusable.invalid}]}]}`,
		},
		{
			kinds.RequestAuthentication, `{jwtRules: [{issuer: i, jwks: x, fromHeaders: [{name: x-tok}, {name: "x a"}], outputPayloadToHeader: ` +
				`x-payload, outputClaimToHeaders: [{header: x-user}, {header: "x b", claim: sub}]}]}`,
			`{jwtRules: [{issuer: i, ` + nobody + `, fromHeaders: [{name: x-tok}], outputPayloadToHeader: x-payload, outputClaimToHeaders: ` +
				`[{header: x-user, claim: unusable.invalid}]}]}`,
		},
		{kinds.RequestAuthentication, `{jwtRules: [{issuer: i, jwks: x, audiences: [a]}]}`,
			`{jwtRules: [{issuer: i, ` + nobody + `, audiences: [a]}]}`},
		{kinds.RequestAuthentication, `{jwtRules: [{issuer: i, ` + someKeys + `, audiences: [""]}]}`,
			`{jwtRules: [{issuer: i, ` + nobody + `}]}`},
		{kinds.RequestAuthentication, `{jwtRules: [{issuer: i, ` + someKeys + `, jwksUri: "https://a/b", timeout: 0s}]}`,
			`{jwtRules: [{issuer: i, ` + someKeys + `}]}`},
		{kinds.RequestAuthentication, `{selector: 1, jwtRules: [{issuer: i, ` + someKeys + `}]}`, `{jwtRules: [{issuer: i, ` + nobody + `}]}`},
		{kinds.RequestAuthentication, `{jwtRules: [{issuer: i, ` + someKeys + `, presence: REQUIRD}]}`,
			`{jwtRules: [{issuer: i, ` + someKeys + `, presence: REQUIRED}]}`},
		{kinds.RequestAuthentication, `{jwtRules: [{issuer: i, ` + someKeys + `, presense: REQUIRED}, {issuer: j, jwks: x, presence: OPTIONAL}]}`,
			`{jwtRules: [{issuer: i, ` + nobody + `, presence: REQUIRED}, {issuer: j, ` + nobody + `}]}`},
		{kinds.RequestAuthentication, `{jwtRules: [x]}`, `{jwtRules: [{issuer: unusable.invalid, ` + nobody + `, presence: REQUIRED}]}`},
		{kinds.RequestAuthentication, `{jwtRule: [{issuer: i, ` + someKeys + `}]}`,
			`{jwtRules: [{issuer: unusable.invalid, ` + nobody + `, presence: REQUIRED}]}`},
		{kinds.RequestAuthentication, `{selector: 1}`, `{jwtRules: [{issuer: unusable.invalid, ` + nobody + `}]}`},

		// Policies.
		{kinds.AuthorizationPolicy, `{rules: [{to: [{operation: {paths: [/a]}}]}, {from: [{source: {ipBlocks: [10.0.0.0/99]}}]}]}`,
			`{rules: [{to: [{operation: {paths: [/a]}}]}]}`},
		{kinds.AuthorizationPolicy, `{action: DENY, rules: [{to: [{operation: {paths: [/a]}}]}, {from: [{source: {ipBlocks: [10.0.0.0/99]}}]}]}`,
			`{action: DENY, rules: [{to: [{operation: {paths: [/a]}}]}, {}]}`},
		{kinds.AuthorizationPolicy, `{action: CUSTOM, provider: {name: p}, rules: [{to: [{operation: {ports: [x]}}]}]}`,
			`{action: DENY, rules: [{}]}`},
		{kinds.PeerAuthentication, `{selector: {matchLabels: {a: b}}, mtls: {mode: PERMISSIVE}, portLevelMtls: {80: {mode: DISABLE}, 81: ` +
			`{mode: NEWER}}}`, `{selector: {matchLabels: {a: b}}, mtls: {mode: PERMISSIVE}, portLevelMtls: {80: {mode: DISABLE}, 81: {mode: ` +
			`STRICT}}}`},

		// Services.
		{kinds.ServiceEntry, `{hosts: [a.b, "c d"], resolution: DNS, exportTo: ["a b"], subjectAltNames: [1], ports: [{number: 443, name: ` +
			`tls, protocol: NEWER}]}`, `{hosts: [a.b], resolution: DNS, exportTo: ["~"], subjectAltNames: [unusable.invalid], ports: [{number: ` +
			`443, name: tls}]}`},
		{kinds.ServiceEntry, `{hosts: [a.b], location: MESH_INTERNAL, resolution: STATIC, endpoints: [{address: 10.0.0.1, ports: {b: 80}}], ` +
			`ports: [{number: 80, name: a}]}`, `{hosts: [a.b], location: MESH_INTERNAL, resolution: STATIC, ports: [{number: 80, name: a}]}`},
		{kinds.ServiceEntry, `{hosts: [a.b], location: NEAR, resolution: DNS, ports: [{number: 80, name: a}]}`,
			`{hosts: [a.b], resolution: STATIC, ports: [{number: 80, name: a}]}`},
		{kinds.ServiceEntry, `{hosts: [a.b], resolution: DNS, endpoints: [{address: "a b"}], ports: [{number: 443, name: tls, protocol: TLS}]}`,
			`{hosts: [a.b], resolution: STATIC, ports: [{number: 443, name: tls, protocol: TLS}]}`},
		{kinds.WasmPlugin, `{url: "oci://a/b", phase: AUTHN, sha256: x, match: [{ports: [{number: 0}]}]}`,
			`{url: "https://unusable.invalid/", phase: AUTHN}`},
		{kinds.WasmPlugin, `{url: "oci://a/b", failStrategy: FAIL_OPEN, sha256: x}`, ""},
		{kinds.TrafficExtension, `{lua: {inlineCode: "function f( end"}}`, ""},
		{
			kinds.TrafficExtension, `{phase: AUTHZ, lua: {inlineCode: "function f( end"}}`,
			`{phase: AUTHZ, lua: {inlineCode: "function envoy_on_request(handle) handle:respond({[\":status\"] = \"503\"}, \"\") end"}}`,
		},
		{kinds.Telemetry, `{tracing: [{randomSamplingPercentage: 200, disableSpanReporting: true}]}`,
			`{tracing: [{disableSpanReporting: true}]}`},
	} {
		doc := inStore(t, c.kind, c.written)
		if doc.Kept == nil && doc.Object == nil {
			if c.kept != "" {
				t.Errorf("%s %s\nnothing is in force: %v %v", c.kind.Name, c.written, doc.Cut, doc.Findings)
			}
			continue
		}
		kept := doc.Kept
		if doc.Object != nil {
			kept = doc.Object
		}
		want := c.kind.New().(proto.Message)
		body, err := yaml.YAMLToJSON([]byte(c.kept))
		if err == nil {
			err = protojson.Unmarshal(body, want)
		}
		if c.kept == "" || err != nil || !proto.Equal(kept.Spec.(proto.Message), want) {
			t.Errorf("%s %s\nin force: %v\nwant: %s %v", c.kind.Name, c.written, kept.Spec, c.kept, err)
		}
		if doc.Object == nil && len(doc.Cut) == 0 {
			t.Errorf("%s %s: nothing says what is left out", c.kind.Name, c.written)
		}
	}
}

// TestFaultsOutsideOfSpec has files with faults of the metadata, with fields that stand beside the spec, and with
// misspelt fields. As much is refused as by the object that their author most likely meant.
func TestFaultsOutsideOfSpec(t *testing.T) {
	const (
		denies = "\nspec: {action: DENY, rules: [{}]}"
		tls    = "\nspec: {host: a.b, trafficPolicy: {tls: {mode: SIMPLE}}}"
	)
	for _, c := range []struct {
		kind *kinds.Kind
		text string
		kept string // the spec, or "" if a server does not start with the object
	}{
		{kinds.AuthorizationPolicy, "spec: {action: DENY}\nrules: [{to: [{operation: {paths: [/a]}}]}]", `{action: DENY, rules: [{}]}`},
		{kinds.AuthorizationPolicy, "spec: {rules: [{}]}\nselector: {matchLabels: {a: b}}", `{}`},
		{kinds.AuthorizationPolicy, "action: DENY\nrules: [{to: [{operation: {paths: [/a]}}]}]", `{action: DENY, rules: [{}]}`},
		{kinds.AuthorizationPolicy, "spec: {action: DENY, rules: [{to: [{operation: {paths: [/a]}}]}]}\nnewer: 1", `{action: DENY, rules: [{}]}`},
		{kinds.PeerAuthentication, "spec: {}\nmtls: {mode: STRICT}", `{mtls: {mode: STRICT}}`},
		{kinds.DestinationRule, "spec: {host: a.b}\ntrafficPolicy: {tls: {mode: SIMPLE}}",
			`{host: a.b, trafficPolicy: {tls: {mode: SIMPLE, credentialName: "invalid://"}}}`},
		{kinds.DestinationRule, "spec: {host: a.b, trafficPolicy: {tls: {mode: SIMPLE}}}\nnewer: 1",
			`{host: a.b, trafficPolicy: {tls: {mode: SIMPLE}}}`},
		{kinds.Sidecar, "spec: {}\negress: [{hosts: [./*]}]", `{egress: [{hosts: ["~/*"]}]}`},
		{kinds.VirtualService, "spec: {hosts: [a.b]}\nhttp: [{directResponse: {status: 403}}]",
			`{hosts: [a.b], http: [{directResponse: {status: 503}}]}`},
		{kinds.DestinationRule, `metadata: {name: o, spec: {host: a.b, trafficPolicy: {tls: {mode: SIMPLE}}}}`,
			`{host: a.b, trafficPolicy: {tls: {mode: SIMPLE}}}`},
		{kinds.DestinationRule, "metadata: {name: o, trafficPolicy: {tls: {mode: SIMPLE}}}\nspec: {host: a.b}",
			`{host: a.b, trafficPolicy: {tls: {mode: SIMPLE, credentialName: "invalid://"}}}`},
		{kinds.AuthorizationPolicy, "metadata: {name: o, rules: [{to: [{operation: {paths: [/a]}}]}]}\nspec: {action: DENY}",
			`{action: DENY, rules: [{}]}`},
		{kinds.AuthorizationPolicy, "metadata: {name: o, newer: 1}\nspec: {action: DENY, rules: [{to: [{operation: {paths: [/a]}}]}]}",
			`{action: DENY, rules: [{}]}`},
		// Unknown fields that have almost the name of a field that restricts.
		{kinds.Sidecar, "spec: {outboundTraficPolicy: {mode: REGISTRY_ONLY}}", `{outboundTrafficPolicy: {mode: REGISTRY_ONLY}}`},
		{kinds.Sidecar, "spec: {outboundPolicy: {mode: ALLOW_ANY}}", `{outboundTrafficPolicy: {mode: REGISTRY_ONLY}}`},
		{kinds.Sidecar, "spec: {selector: {labels: {a: b}}, outboundTrafficPolicy: {mode: ALLOW_ANY}}", ""},
		{kinds.EnvoyFilter,
			"spec: {workloadselectors: {labels: {a: b}}, configPatches: [{applyTo: CLUSTER, patch: {operation: MERGE, value: {name: a}}}]}", ""},
		{kinds.Gateway, "spec: {selectors: {a: b}, servers: [{hosts: [a.b], port: {number: 80, name: http, protocol: HTTP}}]}", ""},
		{kinds.DestinationRule, "spec: {host: a.b, policy: {tls: {mode: SIMPLE}}}",
			`{host: a.b, trafficPolicy: {tls: {mode: SIMPLE, credentialName: "invalid://"}}}`},
		{kinds.DestinationRule, "spec: {host: a.b, selector: {matchLabels: {a: b}}, trafficPolicy: {tls: {mode: SIMPLE}}}",
			`{host: a.b, exportTo: ["."], trafficPolicy: {tls: {mode: SIMPLE}}}`},
		{kinds.DestinationRule, "spec: {host: a.b, selector: {matchLabels: {a: b}}, trafficPolicy: {tls: {mode: DISABLE}}}", ""},
		{kinds.DestinationRule, "spec: {host: a.b, selector: {matchLabels: {a: b}}, trafficPolicy: {tls: {mode: DISABLE}, " +
			"portLevelSettings: [{port: {number: 1}, tls: {mode: SIMPLE}}]}}",
			`{host: a.b, exportTo: ["."], trafficPolicy: {tls: {mode: SIMPLE, credentialName: "invalid://"}}}`},
		{kinds.VirtualService, "spec: {hostname: a.b, http: [{directResponse: {status: 403}}]}", ""},
		{kinds.VirtualService,
			"spec: {hosts: [a.b], http: [{matches: [{uri: {prefix: /a}}], route: [{destination: {host: c}}]}, {directResponse: {status: 403}}]}",
			`{hosts: [a.b], http: [{directResponse: {status: 403}}]}`},
		{kinds.VirtualService, "spec: {hosts: [a.b], http: [{headers: {request: {removes: [x]}}, route: [{destination: {host: c}}]}]}",
			`{hosts: [a.b], http: [{directResponse: {status: 503}}]}`},
		{kinds.VirtualService, "spec: {hosts: [a.b], http: [{header: {request: {remove: [x]}}, route: [{destination: {host: c}}]}]}",
			`{hosts: [a.b], http: [{directResponse: {status: 503}}]}`},
		{kinds.VirtualService, "spec: {hosts: [a.b], http: [{rewrites: {uri: /}, route: [{destination: {host: c}}]}]}",
			`{hosts: [a.b], http: [{directResponse: {status: 503}}]}`},
		{kinds.VirtualService,
			"spec: {hosts: [a.b], http: [{fault: {abort: {status: 403, percentage: {value: 100}}}, route: [{destination: {host: c}}]}]}",
			`{hosts: [a.b], http: [{directResponse: {status: 503}}]}`},
		{kinds.VirtualService,
			"spec: {hosts: [a.b], tcp: [{matches: [{port: 1}], route: [{destination: {host: c}}]}, {route: [{destination: {host: d}}]}]}",
			`{hosts: [a.b], tcp: [{route: [{destination: {host: d}}]}]}`},
		// Weights.
		{kinds.VirtualService,
			"spec: {hosts: [a.b], http: [{route: [{destination: {host: c}, weight: \"90\"}, {destination: {host: d}, weight: 10}]}]}",
			`{hosts: [a.b], http: [{route: [{destination: {host: c}, weight: 90}, {destination: {host: d}, weight: 10}]}]}`},
		{kinds.VirtualService,
			"spec: {hosts: [a.b], http: [{route: [{destination: {host: c}, weight: 80%}, {destination: {host: d}, weight: 20}]}]}",
			`{hosts: [a.b], http: [{route: [{destination: {host: c}, weight: 80}, {destination: {host: d}, weight: 20}]}]}`},
		{kinds.VirtualService,
			"spec: {hosts: [a.b], tcp: [{route: [{destination: {host: c}, weight: x}, {destination: {host: d}, weight: 100}]}]}",
			`{hosts: [a.b], tcp: [{route: [{destination: {host: c}}, {destination: {host: d}, weight: 100}]}]}`},
		{kinds.VirtualService,
			"spec: {hosts: [a.b], tcp: [{route: [{destination: {host: c}, weight: null}, {destination: {host: d, port: {number: 0}}, " +
				"weight: 74}]}]}",
			`{hosts: [a.b], tcp: [{route: [{destination: {host: c}}, {destination: {host: unusable.invalid}, weight: 1}]}]}`},
		{kinds.VirtualService,
			"spec: {hosts: [a.b], http: [{route: [{destination: {host: c}, weight: 0}, {destination: {host: d, port: {number: 0}}, weight: 1}, " +
				"{destination: {host: e, port: {number: 0}}, weight: 2}]}]}",
			`{hosts: [a.b], http: [{route: [{destination: {host: c}}, {destination: {host: unusable.invalid}, weight: 1}]}]}`},
		{kinds.VirtualService, // a destination without a share gets none from another one
			"spec: {hosts: [a.b], tcp: [{route: [{destination: {host: c}}, {destination: {host: d, port: {number: 0}}, weight: 74}]}]}",
			`{hosts: [a.b], tcp: [{route: [{destination: {host: c}}, {destination: {host: unusable.invalid}, weight: 1}]}]}`},
		{kinds.VirtualService,
			"spec: {hosts: [a.b], http: [{route: [{destination: {host: c}, weight: 5}, {destination: {host: d, port: {number: 0}}, weight: 74}]}]}",
			`{hosts: [a.b], http: [{route: [{destination: {host: c}, weight: 5}]}]}`},
		{kinds.Sidecar, "spec: {egres: [{hosts: [./*]}]}", `{egress: [{hosts: ["~/*"]}]}`},
		{kinds.DestinationRule, "spec: {host: a.b, trafficpolicy: {tls: {mode: SIMPLE}}}",
			`{host: a.b, trafficPolicy: {tls: {mode: SIMPLE, credentialName: "invalid://"}}}`},
		{kinds.DestinationRule, "spec: {host: a.b, trafficPolicy: {TLS: {mode: SIMPLE}}}",
			`{host: a.b, trafficPolicy: {tls: {mode: SIMPLE, credentialName: "invalid://"}}}`},
		{kinds.DestinationRule, "spec: {host: a.b, trafficPolicy: {portLevelSetting: [{port: {number: 1}, tls: {mode: SIMPLE}}]}}",
			`{host: a.b, trafficPolicy: {tls: {mode: SIMPLE, credentialName: "invalid://"}}}`},
		{kinds.DestinationRule, "spec: {host: a.b, trafficPolcy: {loadBalancer: {simple: RANDOM}}}", `{host: a.b}`},
		{kinds.ServiceEntry, "spec: {hosts: [a.b], ports: [{number: 1, name: a}], resolution: DNS, exportsTo: [.], subjectAltName: [a]}",
			`{hosts: [a.b], ports: [{number: 1, name: a}], resolution: DNS, exportTo: ["~"], subjectAltNames: [unusable.invalid]}`},
		{kinds.VirtualService, "spec: {hosts: [a.b], exportto: [.], http: [{route: [{destination: {host: a.b}}]}]}",
			`{hosts: [a.b], exportTo: ["."], http: [{route: [{destination: {host: a.b}}]}]}`},
		{kinds.VirtualService, "spec: {hosts: [a.b], http: [{fualt: {abort: {httpStatus: 403}}, route: [{destination: {host: a.b}}]}]}",
			`{hosts: [a.b], http: [{directResponse: {status: 503}}]}`},
		{kinds.VirtualService, "spec: {hosts: [a.b], http: [{fault: {abrt: {httpStatus: 403}}, route: [{destination: {host: a.b}}]}]}",
			`{hosts: [a.b], http: [{directResponse: {status: 503}}]}`},
		{kinds.VirtualService, "spec: {hosts: [a.b], http: [{fault: {delai: {fixedDelay: 1s}}, route: [{destination: {host: a.b}}]}]}",
			`{hosts: [a.b], http: [{route: [{destination: {host: a.b}}]}]}`},
		{kinds.Gateway, "spec: {servers: [{hosts: [a.b], port: {number: 80, name: a, protocol: HTTP}, TLS: {httpsRedirect: true}}]}",
			`{servers: [{hosts: [a.b], port: {number: 80, name: a, protocol: HTTP}, tls: {httpsRedirect: true}}]}`},
	} {
		text := "apiVersion: " + c.kind.Group + "/" + c.kind.Versions[0] + "\nkind: " + c.kind.Name + "\n" + c.text + "\n"
		if !strings.Contains(text, "metadata") {
			text += "metadata: {name: o}\n"
		}
		r := Decode(limits.Default(), "a.yaml", []byte(text))
		if len(r.Documents) != 1 || r.Documents[0].Object != nil || (r.Documents[0].Kept == nil) != (c.kept == "") {
			t.Errorf("%s%+v", text, r)
			continue
		}
		if c.kept == "" {
			if !r.Documents[0].Vital {
				t.Errorf("%sa server starts without it", text)
			}
			continue
		}
		want := c.kind.New().(proto.Message)
		body, err := yaml.YAMLToJSON([]byte(c.kept))
		if err == nil {
			err = protojson.Unmarshal(body, want)
		}
		kept := r.Documents[0].Kept
		if err != nil || !proto.Equal(kept.Spec.(proto.Message), want) || kept.Name != "o" || len(kept.Labels) > 1 {
			t.Errorf("%sin force: %v\nwant: %s %v", text, kept.Spec, c.kept, err)
		}
	}
	for _, metadata := range []string{
		`{name: o, labels: {"a b": c, d: e}}`, `{name: o, labels: [a]}`, `{name: o, labels: {a: {b: c}}}`, `{name: o, annotations: 1}`,
		`{name: o, lables: {a: b}}`,
		`{name: o, generation: x}`, `{name: o, ownerReferences: 1}`, `{name: Bad_Name}`,
	} {
		for kind, spec := range map[*kinds.Kind]string{kinds.AuthorizationPolicy: denies, kinds.DestinationRule: tls} {
			text := "apiVersion: " + kind.Group + "/" + kind.Versions[0] + "\nkind: " + kind.Name + "\nmetadata: " + metadata + spec + "\n"
			d := Decode(limits.Default(), "a.yaml", []byte(text)).Documents[0]
			want := Decode(limits.Default(), "a.yaml", []byte(strings.Replace(text, metadata, "{name: o}", 1))).Documents[0].Object
			if d.Object != nil || d.Kept == nil || !strings.Contains(metadata, d.Kept.Name) || d.Key != d.Kept.Key ||
				!proto.Equal(d.Kept.Spec.(proto.Message), want.Spec.(proto.Message)) {
				t.Errorf("%s%+v", text, d)
			} else if why := d.InForce(nil).Why; !strings.Contains(why, "metadata.") {
				t.Errorf("%s%s", text, why)
			}
		}
	}
}

// TestDocumentsWithoutName has objects of which the name or the namespace cannot be read. A server does not start
// without them if they restrict something.
func TestDocumentsWithoutName(t *testing.T) {
	for _, metadata := range []string{
		"metadata: {}\n", "", "metadata: 1\n", "metadata: {name: 1}\n", "metadata: {nmae: o}\n", "metadata: {generateName: o}\n",
		"metadata: {name: [o]}\n",
		"metadata: {name: a@last-good}\n", "metadata: {name: a/b}\n", "metadata: {name: o, namespace: B_C}\n",
		"metadata: {name: o, namespace: 1}\n",
		"metadata: {name: o, namespce: b}\n", "metadata: {name: o}\nnamespace: b\n", "metadta: {name: o}\n", "name: o\n",
	} {
		for kind, restricts := range map[*kinds.Kind]bool{
			kinds.AuthorizationPolicy: true, kinds.DestinationRule: true, kinds.Sidecar: true, kinds.VirtualService: true,
			kinds.BackendTLSPolicy: true,
			kinds.Telemetry:        false, kinds.WorkloadEntry: false, kinds.HTTPRoute: false,
		} {
			text := "apiVersion: " + kind.Group + "/" + kind.Versions[0] + "\nkind: " + kind.Name + "\n" + metadata + "spec: {}\n"
			if d := Decode(limits.Default(), "a.yaml", []byte(text)).Documents[0]; d.Object != nil || d.Kept != nil || d.Key.Name != "" ||
				d.Vital != restricts {
				t.Errorf("%s%+v", text, d)
			}
		}
	}
}

// TestWrongBackendTLSPolicy has policies that cannot be read, which refuse connections.
func TestWrongBackendTLSPolicy(t *testing.T) {
	for _, validation := range []string{
		`{hostname: a.b, wellKnownCACertificates: 1}`, `{hostname: a.b, caCertificateRefs: 1}`, `{hostname: 1, wellKnownCACertificates: System}`,
		`1`,
		`{hostname: a.b, wellKnownCACertificates: System, subjectAltNames: [1]}`,
	} {
		doc := inStore(t, kinds.BackendTLSPolicy, `{targetRefs: [{group: "", kind: Service, name: a}], validation: `+validation+`}`)
		if doc.Object != nil || doc.Kept == nil {
			t.Errorf("%s: %v", validation, doc.Findings)
			continue
		}
		v := doc.Kept.Spec.(*gatewayv1.BackendTLSPolicy).Spec.Validation
		if v.WellKnownCACertificates != nil || len(v.CACertificateRefs) != 1 || v.CACertificateRefs[0].Name != unusable ||
			v.Hostname != "a.b" && v.Hostname != unusable {
			t.Errorf("%s: %+v", validation, v)
		}
	}
}

// TestMisplacedBackendTLSPolicy has files with fields of a policy beside its spec. Connections are refused.
func TestMisplacedBackendTLSPolicy(t *testing.T) {
	const targets, validation = `targetRefs: [{group: "", kind: Service, name: a}]`,
		`validation: {hostname: a.b, wellKnownCACertificates: System}`
	for _, text := range []string{
		"metadata: {name: o}\nspec: {" + targets + "}\n" + validation, "metadata: {name: o}\nspec: {" + validation + "}\n" + targets,
		"metadata: {name: o}\nspec:\n" + validation + "\n" + targets, "metadata: {name: o}\n" + validation + "\n" + targets,
		"metadata: {name: o, " + validation + "}\nspec: {" + targets + "}",
	} {
		r := Decode(limits.Default(), "a.yaml", []byte("apiVersion: gateway.networking.k8s.io/v1\nkind: BackendTLSPolicy\n"+text+"\n"))
		if len(r.Documents) != 1 || r.Documents[0].Kept == nil {
			t.Errorf("%s: %+v", text, r)
			continue
		}
		p := r.Documents[0].Kept.Spec.(*gatewayv1.BackendTLSPolicy)
		if len(p.Spec.TargetRefs) != 1 || p.Spec.TargetRefs[0].Name != "a" || p.Spec.Validation.WellKnownCACertificates != nil ||
			p.Spec.Validation.CACertificateRefs[0].Name != unusable {
			t.Errorf("%s: %+v", text, p.Spec)
		}
	}
}

// TestLastGood has a good version of an object, a next one that cannot be used, and what is in force then.
func TestLastGood(t *testing.T) {
	const pathA, pathB, broken = `{to: [{operation: {paths: [/a]}}]}`, `{to: [{operation: {paths: [/b]}}]}`,
		`{to: [{operation: {ports: [x]}}]}`
	for _, c := range []struct {
		kind               *kinds.Kind
		good, next         string
		inForce, alongside string // alongside is "" if the last good version is not in force beside the object
	}{
		// Slips: the last good version stays.
		{kinds.Sidecar, `{egress: [{hosts: ["./*"]}]}`, `{egress: [{hosts: [" ./*"]}]}`, `{egress: [{hosts: ["./*"]}]}`, ""},
		{kinds.DestinationRule, `{host: a.b, trafficPolicy: {tls: {mode: SIMPLE}}}`, `{host: a.b, trafficPolicy: {tls: {mode: NEWER}}}`,
			`{host: a.b, trafficPolicy: {tls: {mode: SIMPLE}}}`, ""},
		{kinds.DestinationRule, `{host: a.b, trafficPolicy: {tls: {mode: SIMPLE}}}`,
			`{host: a.b, exportTo: ["**"], trafficPolicy: {tls: {mode: SIMPLE, sni: c.d}}}`,
			`{host: a.b, trafficPolicy: {tls: {mode: SIMPLE}}}`, ""},
		{kinds.VirtualService, `{hosts: [a.b], http: [{route: [{destination: {host: a.b}}]}]}`,
			`{hosts: [a.b], http: [{route: [{destination: {host: "a b"}}]}]}`, `{hosts: [a.b], http: [{route: [{destination: {host: a.b}}]}]}`, ""},
		{kinds.AuthorizationPolicy, `{action: DENY, rules: [{to: [{operation: {paths: [/a]}}]}]}`,
			`{action: DENY, rules: [{to: [{operation: {ports: [x]}}]}]}`, `{action: DENY, rules: [{to: [{operation: {paths: [/a]}}]}]}`, ""},
		{kinds.PeerAuthentication, `{mtls: {mode: PERMISSIVE}}`, `{mtls: {mode: PERMISSIVE}, newer: 1}`, `{mtls: {mode: PERMISSIVE}}`, ""},
		{kinds.AuthorizationPolicy, `{action: DENY, rules: [{}]}`, `{action: NEWER}`, `{action: DENY, rules: [{}]}`, ""},
		{kinds.AuthorizationPolicy, `{rules: [{}]}`, `{action: AUDIT, rules: [{to: [{operation: {ports: [x]}}]}]}`, `{rules: [{}]}`, ""},

		// What can be read of the new version restricts more.
		{
			kinds.Sidecar, `{egress: [{hosts: ["./*"]}]}`, `{egress: [{hosts: ["./*", "store"]}], outboundTrafficPolicy: {mode: REGISTRY_ONLY}}`,
			`{egress: [{hosts: ["./*"]}], outboundTrafficPolicy: {mode: REGISTRY_ONLY}}`, "",
		},
		{kinds.Sidecar, `{egress: [{hosts: ["*/*"]}]}`, `{egress: [{hosts: ["./*"]}], inboundConnectionPool: 1}`, `{egress: [{hosts: ["./*"]}]}`,
			""},
		{kinds.Sidecar, `{egress: [{hosts: ["*/*"]}]}`, `{egress: [{hosts: ["*/*", "~b/*"]}], inboundConnectionPool: 1}`,
			`{egress: [{hosts: ["*/*", "~b/*"]}]}`, ""},
		{kinds.Sidecar, `{egress: [{hosts: ["*/*", "~b/*"]}]}`, `{egress: [{hosts: ["*/*"]}], inboundConnectionPool: 1}`,
			`{egress: [{hosts: ["*/*", "~b/*"]}]}`, ""},
		{
			kinds.DestinationRule, `{host: a.b}`, `{host: a.b, trafficPolicy: {tls: {mode: SIMPLE}, connectionPool: {tcp: {maxConnections: -1}}}}`,
			`{host: a.b, trafficPolicy: {tls: {mode: SIMPLE}, connectionPool: {tcp: {}}}}`, "",
		},
		{
			kinds.VirtualService, `{hosts: [a.b], http: [{route: [{destination: {host: a.b}}]}]}`,
			`{hosts: [a.b], http: [{match: [{uri: {prefix: /admin}}], directResponse: {status: 403}}, {timeout: 9600h, route: [{destination: ` +
				`{host: a.b}}]}]}`,
			`{hosts: [a.b], http: [{match: [{uri: {prefix: /admin}}], directResponse: {status: 403}}, {route: [{destination: {host: a.b}}]}]}`, "",
		},
		{
			kinds.EnvoyFilter, `{configPatches: []}`, `{configPatches: [{applyTo: HTTP_FILTER, patch: {operation: INSERT_FIRST, value: {name: ` +
				`b}}}, {applyTo: NEWER}]}`,
			`{configPatches: [{applyTo: HTTP_FILTER, patch: {operation: INSERT_FIRST, value: {name: b}}}]}`, "",
		},

		{kinds.WasmPlugin, `{url: "oci://a/b", failStrategy: FAIL_OPEN}`, `{url: "oci://a/b", phase: NEWER}`, `{url: "oci://a/b"}`, ""},
		{kinds.WasmPlugin, `{url: "oci://a/b", phase: AUTHN}`,
			`{url: "oci://a/b", phase: AUTHN, priority: x}`, `{url: "oci://a/b", phase: AUTHN}`, ""},
		{kinds.WasmPlugin, `{url: "oci://a/b"}`, `{url: "oci://a/b", failStrategy: FAIL_OPEN, phase: NEWER}`, `{url: "oci://a/b"}`, ""},
		{kinds.TrafficExtension, `{lua: {inlineCode: "a = 1"}}`,
			`{phase: AUTHZ, priority: x, lua: {inlineCode: "a = 2"}}`, `{phase: AUTHZ, lua: {inlineCode: "a = 2"}}`, ""},
		{kinds.TrafficExtension, `{wasm: {url: "oci://a/b"}}`,
			`{priority: x, wasm: {url: "oci://a/b", failStrategy: FAIL_OPEN}}`, `{wasm: {url: "oci://a/b"}}`, ""},

		// Policies.
		{kinds.AuthorizationPolicy, `{rules: [{}]}`, `{rules: [{to: [{operation: {paths: [/a]}}]}, {to: [{operation: {ports: [x]}}]}]}`,
			`{rules: [{to: [{operation: {paths: [/a]}}]}]}`, ""},
		{
			kinds.AuthorizationPolicy, `{rules: [{}]}`, `{action: DENY, rules: [{to: [{operation: {paths: [/a]}}]}, {from: [{source: {ipBlocks: ` +
				`[10.0.0.0/99]}}]}]}`,
			`{action: DENY, rules: [{to: [{operation: {paths: [/a]}}]}]}`, `{rules: [{}]}`,
		},
		{kinds.AuthorizationPolicy, `{rules: [{}]}`, `{action: DENY, rules: [{from: [{source: {ipBlocks: [10.0.0.0/99]}}]}]}`,
			`{action: DENY, rules: [{}]}`, `{rules: [{}]}`},
		{
			kinds.AuthorizationPolicy, `{action: DENY, rules: [{to: [{operation: {paths: [/a]}}]}]}`,
			`{rules: [{to: [{operation: {paths: [/b]}}]}, {to: [{operation: {ports: [x]}}]}]}`,
			`{rules: [{to: [{operation: {paths: [/b]}}]}]}`, `{action: DENY, rules: [{to: [{operation: {paths: [/a]}}]}]}`,
		},
		{
			kinds.AuthorizationPolicy, `{selector: {matchLabels: {a: b}}, rules: [{}]}`, `{selector: {matchLabels: {a: "*"}}, rules: [{}]}`,
			`{selector: {matchLabels: {a: b}}, rules: [{}]}`, "",
		},

		// An action that cannot be read: what the rules match is refused.
		{kinds.AuthorizationPolicy, `{rules: [{}]}`, `{action: DENNY, rules: [` + pathA + `]}`, `{action: DENY, rules: [` + pathA + `]}`,
			`{rules: [{}]}`},
		{kinds.AuthorizationPolicy, `{rules: [{}]}`, `{action: DENNY, rules: [` + pathA + `, ` + broken + `]}`,
			`{action: DENY, rules: [` + pathA + `]}`, `{rules: [{}]}`},
		{kinds.AuthorizationPolicy, `{rules: [{}]}`, `{action: DENNY, rules: [` + broken + `]}`, `{action: DENY, rules: [{}]}`, `{rules: [{}]}`},
		{kinds.AuthorizationPolicy, `{rules: [{}]}`, `{action: ALOW}`, `{action: DENY, rules: [{}]}`, `{rules: [{}]}`},
		{kinds.AuthorizationPolicy, `{action: DENY, rules: [` + pathB + `]}`, `{action: DENNY, rules: [` + pathA + `]}`,
			`{action: DENY, rules: [` + pathA + `]}`, `{action: DENY, rules: [` + pathB + `]}`},
		{kinds.AuthorizationPolicy, `{action: AUDIT, rules: [{}]}`, `{action: {}, rules: [` + pathA + `]}`,
			`{action: DENY, rules: [` + pathA + `]}`, `{action: AUDIT, rules: [{}]}`},

		// Both versions allow: requests are allowed that both allow.
		{kinds.AuthorizationPolicy, `{rules: [` + pathA + `]}`, `{rules: [` + pathA + `], newer: 1}`, `{rules: [` + pathA + `]}`, ""},
		{kinds.AuthorizationPolicy, `{rules: [` + pathA + `]}`, `{rules: [` + pathA + `, ` + pathB + `], newer: 1}`, `{rules: [` + pathA + `]}`,
			""},
		{kinds.AuthorizationPolicy, `{rules: [` + pathA + `, ` + pathB + `]}`, `{rules: [` + pathB + `, ` + broken + `]}`,
			`{rules: [` + pathB + `]}`, ""},
		{kinds.AuthorizationPolicy, `{rules: [` + pathA + `]}`, `{rules: [{}, ` + broken + `]}`, `{rules: [` + pathA + `]}`, ""},
		{kinds.AuthorizationPolicy, `{rules: [` + pathA + `]}`, `{rules: [` + pathB + `, ` + broken + `]}`, `{}`, ""},
		{kinds.AuthorizationPolicy, `{rules: [` + pathA + `]}`, `{rules: [` + broken + `]}`, `{}`, ""},
		{
			kinds.AuthorizationPolicy, `{selector: {matchLabels: {a: b}}, rules: [` + pathA + `, ` + pathB + `]}`,
			`{rules: [` + pathA + `], newer: 1}`,
			`{rules: [` + pathA + `]}`, `{selector: {matchLabels: {a: b}}, rules: [` + pathA + `]}`,
		},
		{
			kinds.AuthorizationPolicy, `{selector: {matchLabels: {a: b}}, rules: [` + pathA + `]}`,
			`{selector: {matchLabels: {a: c}}, rules: [` + pathB + `], newer: 1}`,
			`{selector: {matchLabels: {a: c}}, rules: [` + pathB + `]}`, `{selector: {matchLabels: {a: b}}, rules: [` + pathA + `]}`,
		},
		{kinds.AuthorizationPolicy, `{action: AUDIT, rules: [{}]}`, `{rules: [` + pathA + `], newer: 1}`, `{rules: [` + pathA + `]}`,
			`{action: AUDIT, rules: [{}]}`},

		{kinds.PeerAuthentication, `{mtls: {mode: PERMISSIVE}}`, `{mtls: {mode: STRICT}, newer: 1}`, `{mtls: {mode: STRICT}}`, ""},
		{
			kinds.PeerAuthentication, `{selector: {matchLabels: {a: b}}}`,
			`{selector: {matchLabels: {a: b}}, portLevelMtls: {80: {mode: STRICT}}, newer: 1}`,
			`{selector: {matchLabels: {a: b}}, portLevelMtls: {80: {mode: STRICT}}}`, "",
		},
		{kinds.PeerAuthentication, `{mtls: {mode: PERMISSIVE}}`, `{mtls: {mode: STRIKT}}`, `{mtls: {mode: STRICT}}`, ""},
		{
			kinds.PeerAuthentication, `{selector: {matchLabels: {a: b}}, mtls: {mode: STRICT}}`,
			`{selector: {matchLabels: {c: d}}, mtls: {mode: PERMISSIVE}, newer: 1}`,
			`{selector: {matchLabels: {c: d}}, mtls: {mode: STRICT}}`, `{selector: {matchLabels: {a: b}}, mtls: {mode: STRICT}}`,
		},
		{
			kinds.RequestAuthentication, `{selector: {matchLabels: {a: b}}, jwtRules: [{issuer: i, ` + someKeys + `}]}`,
			`{jwtRules: [{issuer: i, ` + someKeys + `}], newer: 1}`,
			`{jwtRules: [{issuer: i, ` + someKeys + `}]}`, `{selector: {matchLabels: {a: b}}, jwtRules: [{issuer: i, ` + someKeys + `}]}`,
		},
		{
			kinds.PeerAuthentication, `{selector: {matchLabels: {a: b}}, mtls: {mode: PERMISSIVE}, portLevelMtls: {80: {mode: DISABLE}}}`,
			`{selector: {matchLabels: {a: b}}, mtls: {mode: STRICT}, portLevelMtls: {80: {mode: NEWER}, 81: {mode: DISABLE}}}`,
			`{selector: {matchLabels: {a: b}}, mtls: {mode: STRICT}, portLevelMtls: {80: {mode: STRICT}, 81: {mode: PERMISSIVE}}}`, "",
		},
		{
			kinds.RequestAuthentication, `{jwtRules: [{issuer: i, ` + someKeys + `}]}`,
			`{jwtRules: [{issuer: i, jwks: x, fromParams: [p]}, {issuer: j, jwksUri: "https://a/b"}]}`,
			`{jwtRules: [{issuer: i, ` + someKeys + `, fromParams: [p]}, {issuer: j, jwksUri: "https://a/b"}]}`, "",
		},
	} {
		last := inStore(t, c.kind, c.good).Object
		if last == nil {
			t.Fatalf("%s is not good", c.good)
		}
		force := inStore(t, c.kind, c.next).InForce(last)
		for want, o := range map[string]*kinds.Object{c.inForce: force.Object, c.alongside: force.Beside} {
			if want == "" || o == nil {
				if want != "" || o != nil {
					t.Errorf("%s after %s: %v, want %q", c.next, c.good, o, want)
				}
				continue
			}
			spec := inStore(t, c.kind, want).Object
			if spec == nil || !proto.Equal(o.Spec.(proto.Message), spec.Spec.(proto.Message)) {
				t.Errorf("%s after %s: %v, want %s", c.next, c.good, o.Spec, want)
			}
		}
		if force.Beside != nil && (force.Beside.Name != "o"+kinds.LastGood || last.Name != "o") || force.Why == "" {
			t.Errorf("%s after %s: %+v", c.next, c.good, force)
		}
	}
}

// TestUnreadableNextVersion has objects of security kinds whose next version cannot be taken apart.
func TestUnreadableNextVersion(t *testing.T) {
	deep := limits.Default()
	deep.YAMLDepth = 3
	for kind, spec := range map[*kinds.Kind]string{
		kinds.AuthorizationPolicy: `{rules: [{}]}`, kinds.PeerAuthentication: `{mtls: {mode: PERMISSIVE}}`,
		kinds.RequestAuthentication: `{jwtRules: [{issuer: i, ` + someKeys + `}]}`,
	} {
		last := inStore(t, kind, spec).Object
		next := Object(deep, kind, []byte(`{"metadata": {"name": "o", "namespace": "store"}, "spec": {"a": [[[[1]]]]}}`))
		force := next.InForce(last)
		if next.Kept == nil || force.Object == nil || force.Why == "" {
			t.Errorf("%s: %+v of %+v", kind.Name, force, next)
		}
		if kind == kinds.AuthorizationPolicy &&
			force.Object.Spec.(*securityv1.AuthorizationPolicy).Action != securityv1.AuthorizationPolicy_DENY {
			t.Errorf("%v", force.Object)
		}
	}
}

// TestAllowedByBoth has rules of two versions of a policy, and the rules that match what both match.
func TestAllowedByBoth(t *testing.T) {
	rules := func(text string) []*securityv1.Rule {
		doc := inStore(t, kinds.AuthorizationPolicy, `{rules: [`+text+`]}`)
		if doc.Object == nil {
			t.Fatalf("%s: %v", text, doc.Findings)
		}
		return doc.Object.Spec.(*securityv1.AuthorizationPolicy).Rules
	}
	for _, c := range []struct{ a, b, both string }{
		{`{}`, `{}`, `{}`},
		{`{from: [{source: {principals: [a]}}]}`, `{from: [{source: {principals: [a, b]}}]}`, `{from: [{source: {principals: [a]}}]}`},
		{`{from: [{source: {principals: [a]}}]}`, `{from: [{source: {principals: [b]}}]}`, ``},
		{`{from: [{source: {principals: [a], notNamespaces: [c]}}]}`, `{from: [{source: {principals: [a]}}]}`,
			`{from: [{source: {principals: [a], notNamespaces: [c]}}]}`},
		{`{from: [{source: {notNamespaces: [c]}}]}`, `{from: [{source: {notNamespaces: [c, d]}}]}`,
			`{from: [{source: {notNamespaces: [c, d]}}]}`},
		{`{from: [{source: {notNamespaces: [c]}}]}`, `{from: [{source: {notNamespaces: [d]}}]}`, ``},
		{`{from: [{source: {principals: [a]}}]}`, `{to: [{operation: {paths: [/a]}}]}`, ``},
		{`{from: [{source: {principals: [a]}}], to: [{operation: {paths: [/a]}}]}`, `{to: [{operation: {paths: [/a]}}]}`,
			`{from: [{source: {principals: [a]}}], to: [{operation: {paths: [/a]}}]}`},
		{`{to: [{operation: {methods: [GET]}}, {operation: {paths: [/a]}}]}`, `{to: [{operation: {methods: [GET, PUT]}}]}`, ``},
		{`{to: [{operation: {methods: [GET]}}]}`, `{to: [{operation: {methods: [GET, PUT]}}, {operation: {paths: [/a]}}]}`,
			`{to: [{operation: {methods: [GET]}}]}`},
		{`{when: [{key: source.ip, values: [1.2.3.4]}]}`, `{}`, `{when: [{key: source.ip, values: [1.2.3.4]}]}`},
		{`{when: [{key: source.ip, notValues: [1.2.3.4]}]}`, `{when: [{key: source.ip, values: [1.2.3.4, 1.2.3.5]}]}`, ``},
		{`{when: [{key: source.ip, notValues: [1.2.3.4]}]}`, `{when: [{key: source.ip, notValues: [1.2.3.4, 1.2.3.5]}]}`,
			`{when: [{key: source.ip, notValues: [1.2.3.4, 1.2.3.5]}]}`},
	} {
		a, b, want := rules(c.a), rules(c.b), rules(c.both)
		for _, got := range [][]*securityv1.Rule{allowedByBoth(a, b), allowedByBoth(b, a)} {
			if !slices.EqualFunc(got, want, func(x, y *securityv1.Rule) bool { return proto.Equal(x, y) }) {
				t.Errorf("%s and %s: %v, want %s", c.a, c.b, got, c.both)
			}
		}
	}
}
