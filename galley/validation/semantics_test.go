package validation

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// semantic is a spec in one line, and what is to be found in it: the field of an error, of a warning behind "~", or
// nothing.
type semantic struct {
	kind *kinds.Kind
	spec string
	want string
}

func semantics() []semantic {
	vs, dr, gw, se := kinds.VirtualService, kinds.DestinationRule, kinds.Gateway, kinds.ServiceEntry
	ap, pa, ra, ef := kinds.AuthorizationPolicy, kinds.PeerAuthentication, kinds.RequestAuthentication, kinds.EnvoyFilter
	to := "route: [{destination: {host: a}}]"
	http := func(s string) string { return "{hosts: [a], http: [{" + s + "}]}" }
	bound := func(s string) string {
		return "{servers: [{hosts: [a.b], bind: " + s + ", port: {number: 80, name: a, protocol: HTTP}}]}"
	}
	rule := func(s string) string { return "{host: a, trafficPolicy: {" + s + "}}" }
	server := func(s string) string {
		return "{servers: [{hosts: ['*'], port: {number: 443, name: a, protocol: HTTPS}, tls: {" + s + "}}]}"
	}
	entry := func(s string) string { return "{hosts: [a.b], ports: [{number: 80, name: http}], " + s + "}" }
	policy := func(s string) string { return "{rules: [{" + s + "}]}" }
	patch := func(s string) string { return "{configPatches: [{" + s + "}]}" }
	return []semantic{
		{vs, "{hosts: [a], gateways: [mesh, x, y/z], exportTo: [., b], http: [{match: [{uri: {prefix: /a}}], " +
			to + ", timeout: 1ms}, {" + to + "}]}", ""},
		{vs, http(to + ", timeout: 0s"), "~spec.http[0].timeout"},
		{vs, "{}", "spec.http"},
		{vs, "{hosts: [a]}", "spec.http"},
		{vs, "{hosts: ['*'], http: [{" + to + "}]}", "spec.hosts[0]"},
		{vs, "{hosts: ['*'], gateways: [x], http: [{" + to + "}]}", ""},
		{vs, "{hosts: ['a b'], http: [{" + to + "}]}", "~spec.hosts[0]"},
		{vs, "{hosts: [a.*.b], http: [{" + to + "}]}", "~spec.hosts[0]"},
		{vs, "{hosts: [a, a], http: [{" + to + "}]}", "spec.hosts[1]"},
		{vs, "{hosts: [a], gateways: [a/b/c], http: [{" + to + "}]}", "spec.gateways[0]"},
		{vs, "{hosts: [a], exportTo: [A_], http: [{" + to + "}]}", "spec.exportTo[0]"},
		{vs, "{http: [{" + to + "}]}", ""},
		{vs, "{http: [{delegate: {name: x}}]}", "spec.http[0].delegate"},
		{vs, "{tcp: [{" + to + "}]}", "spec.hosts"},
		{vs, http("match: []"), "spec.http[0].route"},
		{vs, http("route: [{destination: {}}]"), "spec.http[0].route[0].destination"},
		{vs, http("route: [{destination: {subset: v1}}]"), "spec.http[0].route[0].destination.host"},
		{vs, http("route: [{weight: 1}]"), "spec.http[0].route[0].destination"},
		{vs, http("route: [{destination: {host: '*.a'}}]"), ""},
		{vs, http("route: [{destination: {host: a, port: {number: 70000}}}]"), "spec.http[0].route[0].destination.port.number"},
		{vs, http("route: [{destination: {host: a, port: {}}}]"), "spec.http[0].route[0].destination.port.number"},
		{vs, http("route: [{destination: {host: a}, weight: -1}]"), "spec.http[0].route[0].weight"},
		{vs, http("route: [{destination: {host: a}}, {destination: {host: b}}]"), "spec.http[0].route"},
		{vs, http("route: [{destination: {host: a}, weight: 0}, {destination: {host: b}, weight: 7}]"), ""},
		{vs, http("match: [{uri: {prefix: a}}, {uri: {exact: b}}, {uri: {exact: '*'}}], " + to),
			"~spec.http[0].match[0].uri.prefix ~spec.http[0].match[1].uri.exact"},
		{vs, http(to + ", redirect: {uri: /}"), "spec.http[0].redirect"},
		{vs, http("redirect: {}"), "spec.http[0].redirect"},
		{vs, http("redirect: {uri: /, redirectCode: 200}"), "spec.http[0].redirect.redirectCode"},
		{vs, http("directResponse: {status: 99}"), "spec.http[0].directResponse.status"},
		{vs, http("directResponse: {status: 503, body: {string: x}}"), ""},
		{vs, http("redirect: {uri: /}, rewrite: {uri: /a}"), "spec.http[0].rewrite"},
		{vs, http(to + ", rewrite: {}"), "spec.http[0].rewrite"},
		{vs, http(to + ", rewrite: {uriRegexRewrite: {match: '(', rewrite: x}}"), "spec.http[0].rewrite.uriRegexRewrite.match"},
		{vs, http(to + ", timeout: 1us"), "spec.http[0].timeout"},
		{vs, http(to + ", timeout: -1s"), "spec.http[0].timeout"},
		{vs, http(to + ", retries: {attempts: -1}"), "spec.http[0].retries.attempts"},
		{vs, http(to + ", retries: {attempts: 1, perTryTimeout: 1ns}"), "spec.http[0].retries.perTryTimeout"},
		{vs, http(to + ", timeout: 2s, retries: {attempts: 1, perTryTimeout: 2s}"), "~spec.http[0].retries.perTryTimeout"},
		{vs, http(to + ", timeout: 2s, retries: {attempts: 1, perTryTimeout: 1s}"), ""},
		{vs, http(to + ", retries: {attempts: 1, retryOn: '5xx,503,reset'}"), ""},
		{vs, http(to + ", retries: {attempts: 1, retryOn: 5x}"), "spec.http[0].retries.retryOn"},
		{vs, http(to + ", fault: {}"), "spec.http[0].fault"},
		{vs, http(to + ", fault: {delay: {fixedDelay: 1s, percentage: {value: 101}}}"), "spec.http[0].fault.delay.percentage.value"},
		{vs, http(to + ", fault: {delay: {percentage: {value: 1}}}"), "~spec.http[0].fault.delay.fixedDelay"},
		{vs, http(to + ", fault: {abort: {httpStatus: 600}}"), "spec.http[0].fault.abort.httpStatus"},
		{vs, http(to + ", fault: {abort: {grpcStatus: UNAVAILBLE}}"), "spec.http[0].fault.abort.grpcStatus"},
		{vs, http(to + ", fault: {abort: {httpStatus: 500, percentage: {value: -0.1}}}"), "spec.http[0].fault.abort.percentage.value"},
		{vs, http(to + ", mirror: {host: m}, mirrorPercentage: {value: 150}"), "spec.http[0].mirrorPercentage.value"},
		{vs, http(to + ", mirror: {host: m}, mirrors: [{destination: {host: m}}]"), "spec.http[0].mirrors"},
		{vs, http(to + ", corsPolicy: {allowOrigins: [{regex: '['}]}"), "spec.http[0].corsPolicy.allowOrigins[0].regex"},
		{vs, http(to + ", corsPolicy: {allowMethods: [GETT]}"), "spec.http[0].corsPolicy.allowMethods[0]"},
		{vs, http("match: [{method: {exact: GET}}, {headers: {X-User: {exact: a}}}], corsPolicy: {maxAge: 1s}, " + to),
			"~spec.http[0].corsPolicy"},
		{vs, http("match: [{method: {exact: GET}}, {uri: {prefix: /a}}], corsPolicy: {maxAge: 1s}, " + to), ""},
		{vs, "{hosts: [a], http: [{match: [{method: {exact: GET}}], corsPolicy: {maxAge: 1s}, " + to +
			"}, {corsPolicy: {maxAge: 1s}, " + to + "}]}", ""},
		{vs, http(to + ", headers: {request: {set: {'a b': c}}}"), `spec.http[0].headers.request.set["a b"]`},
		{vs, http("match: [{uri: {regex: 'a{1000}b{1000}'}}], " + to), "spec.http[0].match[0].uri.regex"},
		{vs, http("match: [{uri: {}}], " + to), "~spec.http[0].match[0].uri"},
		{vs, http("match: [{headers: {x: {regex: '(?=a)'}}}], " + to), "spec.http[0].match[0].headers.x.regex"},
		{vs, http("match: [{headers: {x: {}}, queryParams: {y: {exact: ''}}}], " + to), ""},
		{vs, http("match: [{sourceLabels: {a: '*'}}], " + to), "spec.http[0].match[0].sourceLabels.a"},
		{vs, "{hosts: [a], http: [{" + to + "}, {" + to + "}]}", ""},
		{vs, "{hosts: [a], tls: [{" + to + "}]}", "spec.tls[0].match"},
		{vs, "{hosts: [a], tls: [{match: [{port: 1}], " + to + "}]}", "spec.tls[0].match[0].sniHosts"},
		{vs, "{hosts: ['*.a'], tls: [{match: [{sniHosts: [b.a]}], " + to + "}]}", ""},
		{vs, "{hosts: [a], tls: [{match: [{sniHosts: [b]}], " + to + "}]}", "~spec.tls[0].match[0].sniHosts[0]"},
		{vs, "{hosts: [a], tcp: [{match: [{destinationSubnets: [10.0.0.0/33]}], " + to + "}]}", "spec.tcp[0].match[0].destinationSubnets[0]"},
		{vs, "{hosts: [a], tcp: [{match: [{port: 99999}], " + to + "}]}", "spec.tcp[0].match[0].port"},
		{vs, "{hosts: [a], tcp: [{match: [{port: 5}]}]}", "spec.tcp[0].route"},

		{vs, http(to + ", headers: {request: {set: {x: '100%'}}}"), "spec.http[0].headers.request.set.x"},
		{vs, http("route: [{destination: {host: a}, headers: {response: {add: {x: '%NOPE%'}}}}]"),
			"spec.http[0].route[0].headers.response.add.x"},
		{vs, http(to + ", headers: {request: {set: {host: '100%', x: '100%%', y: '%REQ(a?b):3%'}}}"), ""},
		{vs, http(to + `, headers: {request: {set: {host: "a\nb"}}}`), "spec.http[0].headers.request.set.host"},
		{vs, http(to + ", headers: {request: {set: {':path': /}}}"), "spec.http[0].headers.request.set.:path"},
		{vs, http(to + ", headers: {request: {add: {':method': GET}}}"), "spec.http[0].headers.request.add.:method"},
		{vs, http(to + ", headers: {request: {remove: [':scheme']}}"), "spec.http[0].headers.request.remove[0]"},
		{vs, http(to + ", headers: {response: {set: {':status': '200'}}}"), "spec.http[0].headers.response.set.:status"},
		{vs, http(to + ", headers: {request: {set: {':authority': a}}}"), ""},
		{vs, http("match: [{headers: {':path': {exact: /}, x-a: {exact: x}}}], " + to), ""},
		{vs, http(to + `, rewrite: {uri: "/a\nb"}`), "spec.http[0].rewrite.uri"},
		{vs, http(to + `, rewrite: {authority: "a\rb"}`), "spec.http[0].rewrite.authority"},
		{vs, http(to + `, rewrite: {uriRegexRewrite: {match: a, rewrite: "a\0"}}`), "spec.http[0].rewrite.uriRegexRewrite.rewrite"},
		{vs, http(`redirect: {uri: "/a\nb"}`), "spec.http[0].redirect.uri"},
		{vs, http(`redirect: {authority: "a\0b"}`), "spec.http[0].redirect.authority"},
		{vs, http("match: [{queryParams: {'': {exact: a}}}], " + to), `spec.http[0].match[0].queryParams[""]`},
		{vs, "{hosts: ['*.'], http: [{" + to + "}]}", "~spec.hosts[0]"},
		{vs, "{hosts: ['*..a'], http: [{" + to + "}]}", "~spec.hosts[0]"},
		{vs, "{hosts: ['*-a.b', '*.c.'], http: [{" + to + "}]}", ""},
		{vs, http("match: [{uri: {regex: '\\x{100}'}}], " + to), "spec.http[0].match[0].uri.regex"},
		{vs, http(to + ", timeout: 8760h"), ""},
		{vs, http(to + ", timeout: 8761h"), "spec.http[0].timeout"},
		{vs, http(to + ", retries: {attempts: 1, perTryTimeout: 8761h}"), "spec.http[0].retries.perTryTimeout"},
		{vs, http(to + ", retries: {attempts: 1, backoff: 8761h}"), "spec.http[0].retries.backoff"},
		{vs, http(to + ", fault: {delay: {fixedDelay: 8761h}}"), "spec.http[0].fault.delay.fixedDelay"},
		{vs, "{hosts: ['*a.b'], tls: [{match: [{sniHosts: ['*a.b']}], " + to + "}]}", "spec.tls[0].match[0].sniHosts[0]"},

		{dr, "{}", "spec.host"},
		{dr, rule("connectionPool: {tcp: {connectTimeout: 8761h}}"), "spec.trafficPolicy.connectionPool.tcp.connectTimeout"},
		{dr, rule("connectionPool: {tcp: {idleTimeout: 8761h}}"), "spec.trafficPolicy.connectionPool.tcp.idleTimeout"},
		{dr, rule("connectionPool: {http: {idleTimeout: 8761h}}"), "spec.trafficPolicy.connectionPool.http.idleTimeout"},
		{dr, rule("connectionPool: {tcp: {maxConnectionDuration: 8761h}}"), "spec.trafficPolicy.connectionPool.tcp.maxConnectionDuration"},
		{dr, rule("connectionPool: {tcp: {tcpKeepalive: {time: 8761h}}}"), "spec.trafficPolicy.connectionPool.tcp.tcpKeepalive.time"},
		{dr, rule("outlierDetection: {interval: 8761h}"), "spec.trafficPolicy.outlierDetection.interval"},
		{dr, rule("outlierDetection: {baseEjectionTime: 8761h}"), "spec.trafficPolicy.outlierDetection.baseEjectionTime"},
		{dr, rule("loadBalancer: {warmup: {duration: 8761h}}"), "spec.trafficPolicy.loadBalancer.warmup.duration"},
		{dr, rule("loadBalancer: {consistentHash: {httpCookie: {name: a, ttl: 8761h}}}"),
			"spec.trafficPolicy.loadBalancer.consistentHash.httpCookie.ttl"},
		{dr, rule("tls: {mode: SIMPLE, sni: " + strings.Repeat("a", 256) + "}"), "spec.trafficPolicy.tls.sni"},
		{dr, rule("tls: {mode: SIMPLE, sni: " + strings.Repeat("a", 255) + "}"), ""},
		{dr, rule("tls: {mode: SIMPLE, caCertificates: /a, caCertCredentialName: b}"), "~spec.trafficPolicy.tls.caCertificates"},
		{dr, rule("tls: {mode: SIMPLE, caCertCredentialName: 'configmap://b'}"), "spec.trafficPolicy.tls.caCertCredentialName"},
		{dr, rule("tls: {mode: SIMPLE, caCertCredentialName: b, insecureSkipVerify: true}"), "spec.trafficPolicy.tls.insecureSkipVerify"},
		{dr, rule("tls: {mode: ISTIO_MUTUAL, caCertCredentialName: b}"), "~spec.trafficPolicy.tls.caCertCredentialName"},
		{dr, "{host: a, subsets: [{name: v1, labels: {version: v1}}]}", ""},
		{dr, "{host: a, subsets: [{labels: {version: v1}}]}", "spec.subsets[0].name"},
		{dr, "{host: a, subsets: [{name: v1}, {name: v1}]}", "spec.subsets[1].name"},
		{dr, "{host: a, subsets: [{name: v1, labels: {version: 'v 1'}}]}", "spec.subsets[0].labels.version"},
		{dr, rule("connectionPool: {tcp: {maxConnections: -1}}"), "spec.trafficPolicy.connectionPool.tcp.maxConnections"},
		{dr, rule("connectionPool: {tcp: {connectTimeout: 0s}}"), "spec.trafficPolicy.connectionPool.tcp.connectTimeout"},
		{dr, rule("outlierDetection: {maxEjectionPercent: 101}"), "spec.trafficPolicy.outlierDetection.maxEjectionPercent"},
		{dr, rule("outlierDetection: {failurePercentageThreshold: 100}"), ""},
		{dr, rule("outlierDetection: {failurePercentageThreshold: 101}"), "spec.trafficPolicy.outlierDetection.failurePercentageThreshold"},
		{dr, rule("outlierDetection: {failurePercentageThreshold: 0}"), "~spec.trafficPolicy.outlierDetection.failurePercentageThreshold"},
		{dr, rule("loadBalancer: {backendUtilization: {weightUpdatePeriod: 100ms, metricNamesForComputingUtilization: [named_metrics.a]}}"), ""},
		{dr, rule("loadBalancer: {backendUtilization: {weightStabilizationPeriod: -1s}}"),
			"spec.trafficPolicy.loadBalancer.backendUtilization.weightStabilizationPeriod"},
		{dr, rule("loadBalancer: {backendUtilization: {weightUpdatePeriod: 10ms}}"),
			"~spec.trafficPolicy.loadBalancer.backendUtilization.weightUpdatePeriod"},
		{dr, rule("loadBalancer: {backendUtilization: {metricNamesForComputingUtilization: [named_metrics]}}"),
			"~spec.trafficPolicy.loadBalancer.backendUtilization.metricNamesForComputingUtilization[0]"},
		{dr, rule("loadBalancer: {backendUtilization: {}, zoneAwareLbSetting: {}}"), "~spec.trafficPolicy.loadBalancer.zoneAwareLbSetting"},
		{dr, rule("loadBalancer: {consistentHash: {httpCookie: {ttl: 0s}}}"), "spec.trafficPolicy.loadBalancer.consistentHash.httpCookie.name"},
		{dr, rule("loadBalancer: {consistentHash: {httpHeaderName: x, maglev: {tableSize: 100}}}"),
			"spec.trafficPolicy.loadBalancer.consistentHash.maglev.tableSize"},
		{dr, rule("loadBalancer: {consistentHash: {httpHeaderName: x, maglev: {tableSize: 101}}}"), ""},
		{dr, rule("loadBalancer: {localityLbSetting: {distribute: [{from: a, to: {b: 50}}]}}"),
			"spec.trafficPolicy.loadBalancer.localityLbSetting.distribute[0].to"},
		{dr, rule("loadBalancer: {localityLbSetting: {distribute: [{from: 'a/*/c', to: {b: 100}}]}}"),
			"spec.trafficPolicy.loadBalancer.localityLbSetting.distribute[0].from"},
		{dr, rule("loadBalancer: {localityLbSetting: {distribute: [{from: 'a/*', to: {b: 100}}, {from: ab, to: {b: 40, b/z: 60}}]}}"),
			"~spec.trafficPolicy.loadBalancer.localityLbSetting.distribute[1].to[\"b/z\"]"},
		{dr, rule("loadBalancer: {localityLbSetting: {distribute: [{from: a, to: {b: 100}}, {from: a, to: {b: 100}}]}}"),
			"spec.trafficPolicy.loadBalancer.localityLbSetting.distribute[1].from"},
		{dr, rule("loadBalancer: {localityLbSetting: {distribute: [{from: 'a/*', to: {b: 100}}, {from: a/z, to: {b: 100}}]}}"),
			"spec.trafficPolicy.loadBalancer.localityLbSetting.distribute[1].from"},
		{dr, rule("loadBalancer: {localityLbSetting: {distribute: [{from: a, to: {b: 40, '*': 60}}]}}"),
			"spec.trafficPolicy.loadBalancer.localityLbSetting.distribute[0].to.*"},
		{dr, rule("loadBalancer: {localityLbSetting: {failover: [{from: a, to: a}]}}"),
			"spec.trafficPolicy.loadBalancer.localityLbSetting.failover[0].to"},
		{dr, rule("tls: {mode: MUTUAL, privateKey: /k}"), "spec.trafficPolicy.tls.clientCertificate"},
		{dr, rule("tls: {mode: ISTIO_MUTUAL, caCertificates: /k}"), "~spec.trafficPolicy.tls.caCertificates"},
		{dr, rule("portLevelSettings: [{tls: {mode: DISABLE}}]"), "spec.trafficPolicy.portLevelSettings[0].port"},
		{dr, rule("portLevelSettings: [{port: {number: 0}}]"),
			"~spec.trafficPolicy.portLevelSettings[0] ~spec.trafficPolicy.portLevelSettings[0].port.number"},
		{dr, rule("tunnel: {targetHost: a, targetPort: 1, protocol: GET}"), "spec.trafficPolicy.tunnel.protocol"},
		{dr, rule("loadBalancer: {warmup: {aggression: 1}}"), "spec.trafficPolicy.loadBalancer.warmup.duration"},
		{dr, rule(""), "~spec.trafficPolicy"},

		{gw, "{}", "spec.servers"},
		{gw, "{servers: [{hosts: [./a.b, '*/b.c', c/*], port: {number: 80, name: a, protocol: http}}]}", ""},
		{gw, "{servers: [{hosts: [a.b], port: {number: 80, name: a, protocol: HTPT}}]}", "spec.servers[0].port.protocol"},
		{gw, "{servers: [{hosts: [a.b], port: {number: 80, protocol: HTTP}}]}", "spec.servers[0].port.name"},
		{gw, "{servers: [{hosts: [a.b], port: {number: 0, name: a, protocol: HTTP}}]}", "spec.servers[0].port.number"},
		{gw, "{servers: [{port: {number: 80, name: a, protocol: HTTP}}]}", "spec.servers[0].hosts"},
		{gw, "{servers: [{hosts: [a.b]}]}", "spec.servers[0].port"},
		{gw, "{servers: [{hosts: [a.b], port: {number: 80, name: a, protocol: HTTP}}, " +
			"{hosts: [b.c], port: {number: 81, name: a, protocol: HTTP}}]}", "spec.servers[1].port.name"},
		{gw, "{servers: [{hosts: [a.b], port: {number: 443, name: a, protocol: HTTPS}}]}", "spec.servers[0].tls"},
		{gw, "{servers: [{hosts: [a.b], port: {number: 80, name: a, protocol: HTTP}, tls: {httpsRedirect: true}}]}", ""},
		{gw, "{servers: [{hosts: [a.b], port: {number: 80, name: a, protocol: HTTP}, tls: {mode: SIMPLE}}]}", "spec.servers[0].tls"},
		{gw, "{servers: [{hosts: [A_/a.b], port: {number: 80, name: a, protocol: HTTP}}]}", "spec.servers[0].hosts[0]"},
		{gw, "{servers: [{hosts: [a.b], bind: x y, port: {number: 80, name: a, protocol: HTTP}}]}", "spec.servers[0].bind"},
		{gw, bound("'fe80::1%eth0'"), "spec.servers[0].bind"},
		{gw, bound("'::ffff:1.2.3.4'"), "spec.servers[0].bind"},
		{gw, bound("'unix:'"), "spec.servers[0].bind ~spec.servers[0].port.number"},
		{gw, bound("'unix://rel'"), "spec.servers[0].bind ~spec.servers[0].port.number"},
		{gw, bound("unix:///" + strings.Repeat("a", 107)), "spec.servers[0].bind ~spec.servers[0].port.number"},
		{gw, bound("unix:///" + strings.Repeat("a", 106)), "~spec.servers[0].port.number"},
		{gw, bound("'::1'"), ""},
		{gw, "{servers: [{hosts: ['*.'], port: {number: 80, name: a, protocol: HTTP}}]}", "spec.servers[0].hosts[0]"},
		{gw, server("mode: SIMPLE"), "spec.servers[0].tls.credentialName"},
		{gw, server("mode: SIMPLE, credentialName: a"), ""},
		{gw, server("mode: SIMPLE, credentialName: a, ecdhCurves: [P-256], alpnProtocols: [h2, http/1.1]"), ""},
		{gw, server("mode: SIMPLE, credentialName: a, ecdhCurves: [P-256, P-256]"), "~spec.servers[0].tls.ecdhCurves[1]"},
		{gw, server("mode: SIMPLE, credentialName: a, alpnProtocols: ['']"), "spec.servers[0].tls.alpnProtocols[0]"},
		{gw, server("mode: SIMPLE, credentialName: a, alpnProtocols: ['h2,http/1.1']"), "spec.servers[0].tls.alpnProtocols[0]"},
		{gw, server("mode: PASSTHROUGH, alpnProtocols: [h2]"), "~spec.servers[0].tls.alpnProtocols"},
		{gw, server("mode: SIMPLE, serverCertificate: /c"), "spec.servers[0].tls.privateKey"},
		{gw, server("mode: MUTUAL, serverCertificate: /c, privateKey: /k"), "~spec.servers[0].tls.caCertificates"},
		{gw, server("mode: OPTIONAL_MUTUAL, tlsCertificates: [{serverCertificate: /c, privateKey: /k}]"), "~spec.servers[0].tls.caCertificates"},
		{gw, server("mode: ISTIO_MUTUAL, credentialName: a"), "spec.servers[0].tls.credentialName"},
		{gw, server("mode: SIMPLE, credentialName: a, minProtocolVersion: TLSV1_3, maxProtocolVersion: TLSV1_2"),
			"spec.servers[0].tls.minProtocolVersion"},

		{se, "{ports: [{number: 80, name: a}]}", "spec.hosts"},
		{se, entry("addresses: [10.0.0.0/8, 1.2.3.4, '::1']"), ""},
		{se, entry("addresses: [10.0.0]"), "spec.addresses[0]"},
		{se, entry("resolution: DNS, addresses: [10.0.0.0/8]"), "spec.addresses[0]"},
		{se, entry("endpoints: [{address: 1.2.3.4}]"), "spec.endpoints"},
		{se, entry("resolution: STATIC, endpoints: [{address: 1.2.3.4, ports: {http: 8080}}]"), ""},
		{se, entry("resolution: STATIC, endpoints: [{address: a.b}]"), "spec.endpoints[0].address"},
		{se, entry("resolution: STATIC, endpoints: [{address: 'unix:///a/b'}]"), ""},
		{se, entry("resolution: STATIC, endpoints: [{address: 1.2.3.4, ports: {grpc: 8080}}]"), "spec.endpoints[0].ports.grpc"},
		{se, entry("resolution: STATIC, workloadSelector: {labels: {a: b}}, endpoints: [{address: 1.2.3.4}]"), "spec.endpoints"},
		{se, entry("resolution: DNS_ROUND_ROBIN, endpoints: [{address: a}, {address: b}]"), "spec.endpoints"},
		{se, entry("resolution: STATIC, endpoints: [{address: 'fe80::1%eth0'}]"), "spec.endpoints[0].address"},
		{se, entry("resolution: STATIC, endpoints: [{address: 'unix:'}]"), "spec.endpoints[0].address"},
		{se, entry("resolution: STATIC, endpoints: [{address: 'unix:///" + strings.Repeat("a", 107) + "'}]"), "spec.endpoints[0].address"},
		{se, entry("resolution: STATIC, endpoints: [{address: 1.2.3.4, weight: 4294967295}]"), ""},
		{se, entry("resolution: STATIC, endpoints: [{address: 1.2.3.4, weight: 4294967294}, {address: 1.2.3.5, weight: 1}]"), ""},
		{se, entry("resolution: STATIC, endpoints: [{address: 1.2.3.4, weight: 4294967295}, {address: 1.2.3.5}]"), "~spec.endpoints"},
		{se, entry("addresses: ['fe80::1%eth0']"), "spec.addresses[0]"},
		{se, entry("resolution: DNS_ROUND_ROBIN, endpoints: [{network: a}]"), "spec.endpoints[0].address"},
		{se, entry("resolution: DNS_ROUND_ROBIN, endpoints: [{}]"), "spec.endpoints[0].address"},
		{se, "{hosts: ['*a.com'], ports: [{number: 443, name: a, protocol: TLS}]}", "spec.hosts[0]"},
		{se, "{hosts: ['*a.com'], ports: [{number: 443, name: https-a}]}", "spec.hosts[0]"},
		{se, "{hosts: ['*a.com'], ports: [{number: 80, name: a, protocol: HTTP}]}", ""},
		{se, "{hosts: ['*.a.com'], ports: [{number: 443, name: a, protocol: HTTPS}]}", ""},
		{se, "{hosts: ['*.'], ports: [{number: 80, name: a, protocol: HTTP}]}", "spec.hosts[0]"},
		{se, "{hosts: ['*'], ports: [{number: 80, name: a}]}", "spec.hosts[0]"},
		{se, "{hosts: ['*.a'], resolution: DNS, ports: [{number: 80, name: a}]}", "spec.hosts"},
		{se, "{hosts: ['*.a'], resolution: DYNAMIC_DNS, ports: [{number: 80, name: a, protocol: HTTP}]}", ""},
		{se, "{hosts: [a], ports: [{number: 80, name: a}, {number: 80, name: b}]}", "spec.ports[1].number"},
		{se, "{hosts: [a], ports: [{number: 80, name: a}, {number: 81, name: a}]}", "spec.ports[1].name"},
		{se, "{hosts: [a], ports: [{number: 80}]}", "spec.ports[0].name"},
		{se, "{hosts: [a]}", "~spec.ports"},

		{kinds.WorkloadEntry, "{}", "spec.address"},
		{kinds.WorkloadEntry, "{network: a}", ""},
		{kinds.WorkloadEntry, "{address: 'a b'}", "spec.address"},
		{kinds.WorkloadEntry, "{address: 'unix://rel'}", "spec.address"},
		{kinds.WorkloadEntry, "{address: 'unix:'}", "spec.address"},
		{kinds.WorkloadEntry, "{address: 'unix:///" + strings.Repeat("a", 107) + "'}", "spec.address"},
		{kinds.WorkloadEntry, "{address: 'unix:///" + strings.Repeat("a", 106) + "'}", ""},
		{kinds.WorkloadEntry, "{address: 'fe80::1%eth0'}", "spec.address"},
		{kinds.WorkloadEntry, "{address: 1.2.3.4, ports: {a: 0}}", "spec.ports.a"},
		{kinds.WorkloadEntry, "{address: 1.2.3.4, weight: 2147483647}", ""},
		{kinds.WorkloadEntry, "{address: 1.2.3.4, weight: 2147483648}", "~spec.weight"},
		{kinds.WorkloadGroup, "{template: {weight: 2147483648}}", "~spec.template.weight"},
		{kinds.WorkloadGroup, "{}", "spec.template"},
		{kinds.WorkloadGroup, "{template: {}, probe: {httpGet: {}}}", "spec.probe.httpGet.port"},
		{kinds.WorkloadGroup, "{template: {}, probe: {exec: {}}}", "spec.probe.exec.command"},
		{kinds.Sidecar, "{workloadSelector: {}, egress: [{hosts: ['*/*']}]}", "~spec.workloadSelector"},
		{kinds.DestinationRule, "{host: a, workloadSelector: {}}", "~spec.workloadSelector"},
		{kinds.ServiceEntry, "{hosts: [a.b], workloadSelector: {}, ports: [{number: 80, name: a, protocol: HTTP}], resolution: STATIC}",
			"~spec.workloadSelector"},
		{kinds.Sidecar, "{egress: [{hosts: ['*/*', ./a.b]}]}", ""},
		{kinds.Sidecar, "{egress: [{hosts: ['~/*']}]}", ""},
		{kinds.Sidecar, "{egress: [{hosts: ['*/*', '~b/*', '~/c.d', '~./*.b', '~*/a.b']}]}", ""},
		{kinds.Sidecar, "{egress: [{hosts: ['~/a.b']}]}", "~spec.egress[0].hosts"},
		{kinds.Sidecar, "{egress: [{hosts: ['./a.b', '~/*']}]}", "~spec.egress[0].hosts[0]"},
		{kinds.Sidecar, "{egress: [{hosts: ['*/*', 'b/a.b', '~b/*.b']}]}", "~spec.egress[0].hosts[1]"},
		{kinds.Sidecar, "{egress: [{hosts: ['*/*', '~b!/*']}]}", "spec.egress[0].hosts[1]"},
		{kinds.Sidecar, "{egress: [{hosts: ['*/*', '~~b/*']}]}", "spec.egress[0].hosts[1]"},
		{kinds.Sidecar, "{egress: [{hosts: ['*/*', '~b/a_b.c']}]}", "spec.egress[0].hosts[1]"},
		{kinds.Sidecar, "{egress: [{hosts: ['*/*', '~b']}]}", "spec.egress[0].hosts[1]"},
		{kinds.Sidecar, "{egress: [{hosts: [a]}]}", "spec.egress[0].hosts[0]"},
		{kinds.Sidecar, "{egress: [{}]}", "spec.egress[0].hosts"},
		{kinds.Sidecar, "{egress: [{hosts: ['*/*']}, {hosts: ['*/*'], port: {number: 1, protocol: TCP, name: a}}]}", "spec.egress[0]"},
		{kinds.Sidecar, "{ingress: [{port: {number: 80, protocol: HTTP, name: a}, defaultEndpoint: '127.0.0.1:8080'}]}", ""},
		{kinds.Sidecar, "{ingress: [{port: {number: 80, protocol: HTTP, name: a}, defaultEndpoint: 'web:8080'}]}",
			"spec.ingress[0].defaultEndpoint"},
		{kinds.Sidecar, "{ingress: [{port: {number: 80, protocol: HTTP, name: a}, defaultEndpoint: '1.2.3.4:8080'}]}",
			"~spec.ingress[0].defaultEndpoint"},
		{kinds.Sidecar, "{ingress: [{port: {number: 80, protocol: HTTP, name: a}, defaultEndpoint: '127.0.0.1'}]}",
			"spec.ingress[0].defaultEndpoint"},
		{kinds.Sidecar, "{ingress: [{bind: 'fe80::1%a', port: {number: 80, protocol: HTTP, name: a}}]}", "spec.ingress[0].bind"},
		{kinds.Sidecar, "{ingress: [{bind: 'unix:///a', port: {number: 80, protocol: HTTP, name: a}}]}", "spec.ingress[0].bind"},
		{kinds.Sidecar, "{ingress: [{port: {number: 80, protocol: HTTP, name: a}, defaultEndpoint: 'unix:'}]}",
			"spec.ingress[0].defaultEndpoint"},
		{kinds.Sidecar, "{egress: [{bind: 'unix:', port: {number: 0, protocol: HTTP, name: a}, hosts: ['*/*']}]}", "spec.egress[0].bind"},
		{kinds.Sidecar, "{egress: [{bind: 'unix:///" + strings.Repeat("a", 107) +
			"', port: {number: 0, protocol: HTTP, name: a}, hosts: ['*/*']}]}", "spec.egress[0].bind"},
		{kinds.Sidecar, "{egress: [{bind: '::ffff:1.2.3.4', port: {number: 80, protocol: HTTP, name: a}, hosts: ['*/*']}]}",
			"spec.egress[0].bind"},
		{kinds.Sidecar, "{ingress: [{bind: 1.2.3.4}]}", "spec.ingress[0].port"},
		{kinds.Sidecar, "{egress: [{bind: localhost, hosts: ['*/*']}]}", "spec.egress[0].bind ~spec.egress[0].bind"},
		{kinds.Sidecar, "{egress: [{bind: 'unix:///a', hosts: ['*/*']}]}", "spec.egress[0].bind ~spec.egress[0].bind"},
		{kinds.Sidecar, "{workloadSelector: {labels: {a: 'b*'}}}", "~spec spec.workloadSelector.labels.a"},

		{pa, "{mtls: {mode: STRICT}}", ""},
		{pa, "{portLevelMtls: {80: {mode: DISABLE}}}", "spec.portLevelMtls"},
		{pa, "{selector: {matchLabels: {a: b}}, portLevelMtls: {80: {mode: DISABLE}}}", ""},
		{pa, "{selector: {matchLabels: {a: b}}, portLevelMtls: {80000: {mode: DISABLE}}}", "spec.portLevelMtls.80000"},
		{ap, "{}", ""},
		{ap, "{action: DENY}", "spec.rules"},
		{ap, "{action: CUSTOM, rules: [{}]}", "spec.provider.name"},
		{ap, "{action: CUSTOM, provider: {name: a}, rules: [{}]}", ""},
		{ap, "{provider: {name: a}, rules: [{}]}", "spec.provider"},
		{ap, "{selector: {matchLabels: {a: b}}, targetRefs: [{kind: Service, name: a}]}", "spec.targetRefs"},
		{ap, "{targetRefs: [{kind: Pod, name: a}]}", "spec.targetRefs[0].kind"},
		{ap, policy("from: []"), "~spec.rules[0].from"},
		{ap, policy("from: [{}]"), "spec.rules[0].from[0].source"},
		{ap, policy("from: [{source: {principals: []}}]"), "spec.rules[0].from[0].source"},
		{ap, policy("from: [{source: {ipBlocks: [1.2.3]}}]"), "spec.rules[0].from[0].source.ipBlocks[0]"},
		{ap, policy("from: [{source: {serviceAccounts: [a/b], namespaces: [c]}}]"), "spec.rules[0].from[0].source.namespaces"},
		{ap, policy("from: [{source: {serviceAccounts: [a/b/c]}}]"), "spec.rules[0].from[0].source.serviceAccounts[0]"},
		{ap, policy("from: [{source: {principals: ['a*b']}}]"), "~spec.rules[0].from[0].source.principals[0]"},
		{ap, policy("from: [{source: {notPrincipals: ['*/sa/a*']}}]"), "~spec.rules[0].from[0].source.notPrincipals[0]"},
		{ap, policy("from: [{source: {namespaces: ['a*b']}}]"), "~spec.rules[0].from[0].source.namespaces[0]"},
		{ap, policy("from: [{source: {trustDomains: ['*a*']}}]"), "~spec.rules[0].from[0].source.trustDomains[0]"},
		{ap, policy("from: [{source: {requestPrincipals: ['*/*']}}]"), "~spec.rules[0].from[0].source.requestPrincipals[0]"},
		{ap, policy("from: [{source: {requestPrincipals: ['https://a.b/c', '*', '*c', 'a/*', 'a*', a/b]}}]"), ""},
		{ap, policy("from: [{source: {requestPrincipals: [me@a.b]}}]"), "~spec.rules[0].from[0].source.requestPrincipals[0]"},
		{ap, policy("from: [{source: {notRequestPrincipals: ['https://a.b']}}]"), "~spec.rules[0].from[0].source.notRequestPrincipals[0]"},
		{ap, policy("when: [{key: request.auth.principal, values: [a/]}]"), "~spec.rules[0].when[0].values[0]"},
		{ap, policy("from: [{source: {principals: [td/ns/a/sa/b, td/ns/a/*, 'td/*', td/own/id, '*/sa/b', '*']}}]"), ""},
		{ap, policy("from: [{source: {principals: ['spiffe://td/ns/a/sa/b']}}]"), "~spec.rules[0].from[0].source.principals[0]"},
		{ap, policy("from: [{source: {notPrincipals: [ns/a/sa/b]}}]"), "~spec.rules[0].from[0].source.notPrincipals[0]"},
		{ap, policy("from: [{source: {principals: [sleep]}}]"), "~spec.rules[0].from[0].source.principals[0]"},
		{ap, policy("from: [{source: {notPrincipals: [a/sleep]}}]"), "~spec.rules[0].from[0].source.notPrincipals[0]"},
		{ap, policy("from: [{source: {principals: [cluster.local/a/sleep]}}]"), "~spec.rules[0].from[0].source.principals[0]"},
		{ap, policy("from: [{source: {principals: ['cluster.local/a/*']}}]"), "~spec.rules[0].from[0].source.principals[0]"},
		{ap, policy("from: [{source: {principals: ['cluster.local/ns/*', 'cluster.local/ns/a*', 'cluster.local/n*', 'cluster.local/*']}}]"), ""},
		{ap, policy("from: [{source: {principals: ['cluster.local/ns/a/sa/*', cluster.local/ns/a/sa/b, example.com/db]}}]"), ""},
		{ap, policy("when: [{key: source.principal, values: [td/ns/a]}]"), "~spec.rules[0].when[0].values[0]"},
		{ap, policy("from: [{source: {namespaces: [Shop]}}]"), "~spec.rules[0].from[0].source.namespaces[0]"},
		{ap, policy("from: [{source: {namespaces: [a/b]}}]"), "~spec.rules[0].from[0].source.namespaces[0]"},
		{ap, policy("from: [{source: {trustDomains: ['spiffe://td']}}]"), "~spec.rules[0].from[0].source.trustDomains[0]"},
		{ap, policy("from: [{source: {serviceAccounts: ['system:serviceaccount:a:b']}}]"), "~spec.rules[0].from[0].source.serviceAccounts[0]"},
		{ap, policy("from: [{source: {ipBlocks: [10.0.0.1/8]}}]"), "~spec.rules[0].from[0].source.ipBlocks[0]"},
		{ap, policy("from: [{source: {remoteIpBlocks: [0.0.0.0]}}]"), "~spec.rules[0].from[0].source.remoteIpBlocks[0]"},
		{ap, policy("from: [{source: {ipBlocks: ['::ffff:10.0.0.1', '::ffff:10.0.0.0/104', '::1', '10.0.0.0/8', '0.0.0.0/0']}}]"),
			"~spec.rules[0].from[0].source.ipBlocks[0] ~spec.rules[0].from[0].source.ipBlocks[1]"},
		{ap, policy("from: [{source: {namespaces: [a, b], notNamespaces: [b, a]}}]"), "~spec.rules[0].from[0].source.namespaces"},
		{ap, policy("from: [{source: {namespaces: [a, b], notNamespaces: [b]}}]"), ""},
		{ap, policy("to: [{operation: {paths: [/a/b, '/a/c*'], notPaths: ['/a/*']}}]"), "~spec.rules[0].to[0].operation.paths"},
		{ap, policy("to: [{operation: {methods: [PUT, POST], notMethods: ['P*']}}]"), "~spec.rules[0].to[0].operation.methods"},
		{ap, policy("to: [{operation: {paths: ['*/b/c', /c], notPaths: ['*c']}}]"), "~spec.rules[0].to[0].operation.paths"},
		{ap, policy("to: [{operation: {paths: ['/a*', '*/a/b'], notPaths: ['/a/*']}}]"), ""},
		{ap, policy("to: [{operation: {paths: [/a], notPaths: ['/a/*', '*/b']}}]"), ""},
		{ap, policy("when: [{key: 'request.headers[a][b]', values: [c]}]"), "~spec.rules[0].when[0].key"},
		{ap, policy("from: [{source: {notPrincipals: ['*']}}]"), ""},
		{ap, policy("from: [{source: {principals: [td/ns/a/sa/b], notPrincipals: ['*']}}]"), "~spec.rules[0].from[0].source.principals"},
		{ap, policy("to: [{operation: {notMethods: ['*']}}]"), "~spec.rules[0].to[0].operation.notMethods"},
		{ap, policy("to: [{operation: {methods: [get]}}]"), "~spec.rules[0].to[0].operation.methods[0]"},
		{ap, policy("to: [{operation: {methods: ['GET,POST']}}]"), "~spec.rules[0].to[0].operation.methods[0]"},
		{ap, policy("to: [{operation: {methods: ['GET', '*', 'P*', 'MKCOL', 'VERSION-CONTROL']}}]"), ""},
		{ap, policy("to: [{operation: {hosts: ['https://a.b']}}]"), "~spec.rules[0].to[0].operation.hosts[0]"},
		{ap, policy("to: [{operation: {hosts: [a.b/c]}}]"), "~spec.rules[0].to[0].operation.hosts[0]"},
		{ap, policy("to: [{operation: {paths: [admin]}}]"), "~spec.rules[0].to[0].operation.paths[0]"},
		{ap, policy("to: [{operation: {notPaths: ['admin*']}}]"), "~spec.rules[0].to[0].operation.notPaths[0]"},
		{ap, policy("to: [{operation: {paths: ['/a?b=c']}}]"), "~spec.rules[0].to[0].operation.paths[0]"},
		{ap, policy("to: [{operation: {paths: ['/a b']}}]"), "~spec.rules[0].to[0].operation.paths[0]"},
		{ap, policy("to: [{operation: {paths: ['/a%20b', '*', '*.html', '/', '/a*']}}]"), ""},
		{ap, policy("to: [{operation: {ports: ['0']}}]"), "~spec.rules[0].to[0].operation.ports[0]"},
		{ap, policy("to: [{operation: {notHosts: [a.b]}}]"), "~spec.rules[0].to[0].operation.notHosts[0]"},
		{ap, policy("to: [{operation: {hosts: [a.b], notHosts: [c.d, 'c.d:*', 'e.f*']}}]"), ""},
		{ap, "{action: DENY, rules: [{to: [{operation: {hosts: [a.b, 'x.*']}}]}]}", "~spec.rules[0].to[0].operation.hosts[0]"},
		{ap, "{action: DENY, rules: [{to: [{operation: {hosts: ['*.a.b']}}]}]}", "~spec.rules[0].to[0].operation.hosts[0]"},
		{ap, "{action: DENY, rules: [{to: [{operation: {hosts: [a.b, 'a.b:*', '*.c', '*.c:80', '*']}}]}]}", ""},
		{ap, "{action: AUDIT, rules: [{to: [{operation: {hosts: [a.b]}}]}]}", ""},
		{ap, policy("when: [{key: 'request.headers[a b]', values: [a]}]"), "~spec.rules[0].when[0].key"},
		{ap, policy("when: [{key: 'request.headers[:paths]', values: [a]}]"), "~spec.rules[0].when[0].key"},
		{ap, policy("when: [{key: 'request.headers[:path]', values: [a]}]"), ""},
		{ap, policy("when: [{key: 'request.headers[cookie]', values: ['*a*']}]"), "~spec.rules[0].when[0].values[0]"},
		{ap, policy("when: [{key: 'request.headers[accept]', values: ['*/*', 'a*']}]"), ""},
		{ap, policy("when: [{key: request.auth.claims.groups, values: [a]}]"), "spec.rules[0].when[0].key"},
		{ap, policy("when: [{key: connection.sni, values: [A.example]}]"), "~spec.rules[0].when[0].values[0]"},
		{ap, policy("when: [{key: connection.sni, values: ['a.example:443']}]"), "~spec.rules[0].when[0].values[0]"},
		{ap, policy("when: [{key: source.namespace, values: [a]}, {key: source.namespace, values: [b]}]"), "~spec.rules[0].when[1].values"},
		{ap, policy("when: [{key: source.namespace, values: [a, c]}, {key: source.namespace, values: [b, c]}, " +
			"{key: source.principal, values: ['*']}]"), ""},
		{ap, policy("to: [{operation: {}}]"), "spec.rules[0].to[0].operation"},
		{ap, policy("to: [{operation: {ports: ['x']}}]"), "spec.rules[0].to[0].operation.ports[0]"},
		{ap, policy("to: [{operation: {paths: ['/a/{*}/b', '/{**}', '/a*']}}]"), ""},
		{ap, policy("to: [{operation: {paths: ['/a{*}']}}]"), "spec.rules[0].to[0].operation.paths[0]"},
		{ap, policy("to: [{operation: {paths: ['/a/{**}/', '/{**}/b', '/a%20b/{*}/c']}}]"), ""},
		{ap, policy("to: [{operation: {paths: ['/{**}/a/{*}']}}]"), "spec.rules[0].to[0].operation.paths[0]"},
		{ap, policy("to: [{operation: {paths: ['a/{*}']}}]"), "spec.rules[0].to[0].operation.paths[0]"},
		{ap, policy("to: [{operation: {paths: ['/a//{*}']}}]"), "spec.rules[0].to[0].operation.paths[0]"},
		{ap, policy("to: [{operation: {notPaths: ['/a b/{*}']}}]"), "spec.rules[0].to[0].operation.notPaths[0]"},
		{ap, policy("when: [{key: 'request.auth.claims[][a]', values: [a]}]"), "spec.rules[0].when[0].key"},
		{ap, policy("when: [{key: 'request.headers[x]', values: [a]}]"), ""},
		{ap, policy("when: [{key: source.ipp, values: [a]}]"), "spec.rules[0].when[0].key"},
		{ap, policy("when: [{key: source.ip, values: [a]}]"), "spec.rules[0].when[0].values[0]"},
		{ap, policy("when: [{key: destination.port, values: ['0']}]"), "~spec.rules[0].when[0].values[0]"},
		{ap, policy("when: [{key: source.namespace}]"), "spec.rules[0].when[0].values"},
		{ap, policy("when: [{values: [a]}]"), "spec.rules[0].when[0].key"},
		{ef, "{configPatches: [{applyTo: FILTER_CHAIN, match: {listener: {filterChain: {transportSocket: tls}}}, patch: {operation: REMOVE}}]}",
			"~spec.configPatches[0].match.listener.filterChain.transportSocket"},
		{ra, "{jwtRules: [{issuer: a, jwksUri: 'https://a/b'}]}", ""},
		{ra, "{jwtRules: [{jwksUri: 'https://a/b'}]}", "~spec.jwtRules[0].issuer"},
		{ra, "{jwtRules: [{issuer: a, jwksUri: a/b}]}", "spec.jwtRules[0].jwksUri"},
		{ra, "{jwtRules: [{issuer: a, jwksUri: 'https://a/b', jwks: '{\"keys\": []}'}]}", "spec.jwtRules[0].jwksUri"},
		{ra, "{jwtRules: [{issuer: a, jwks: '{}'}]}", "spec.jwtRules[0].jwks"},
		{ra, "{jwtRules: [{issuer: a, fromHeaders: [{prefix: a}]}]}", "spec.jwtRules[0].fromHeaders[0].name"},
		{ra, "{jwtRules: [{issuer: a, timeout: 0s}]}", "spec.jwtRules[0].timeout"},
		{ra, "{jwtRules: [{issuer: a, jwksUri: 'https://a/b', presence: REQUIRED}]}", ""},
		{ra, "{jwtRules: [{issuer: a, jwksUri: 'https://a/b', presence: MUST}]}", "spec.jwtRules[0].presence"},

		{ef, patch("applyTo: HTTP_FILTER, match: {proxy: {proxyVersion: '^1\\.2.*'}}, patch: {operation: INSERT_BEFORE, value: {name: a}}"), ""},
		{ef, patch("patch: {operation: REMOVE}"), "spec.configPatches[0].applyTo"},
		{ef, patch("applyTo: HTTP_FILTER, " +
			"match: {listener: {filterChain: {filter: {name: envoy.http_connection_manager, subFilter: {name: a}}}}}, patch: {operation: REMOVE}"),
			"~spec.configPatches[0].match.listener.filterChain.filter.name"},
		{ef, patch("applyTo: HTTP_FILTER, " +
			"match: {listener: {filterChain: {filter: {name: envoy.tcp_proxy, subFilter: {name: a}}}}}, patch: {operation: REMOVE}"),
			"spec.configPatches[0].match.listener.filterChain.filter.name ~spec.configPatches[0].match.listener.filterChain.filter.name"},
		{ef, patch("applyTo: HTTP_FILTER, " +
			"match: {listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager, subFilter: {name: envoy.router}}}}}, " +
			"patch: {operation: REMOVE}"), "~spec.configPatches[0].match.listener.filterChain.filter.subFilter.name"},
		{ef, patch("applyTo: LISTENER_FILTER, match: {listener: {listenerFilter: envoy.listener.tls_inspector}}, patch: {operation: REMOVE}"),
			"~spec.configPatches[0].match.listener.listenerFilter"},
		{ef, patch("applyTo: CLUSTER"), "spec.configPatches[0].patch.operation"},
		{ef, patch("applyTo: CLUSTER, patch: {operation: MERGE}"), "spec.configPatches[0].patch.value"},
		{ef, patch("applyTo: CLUSTER, patch: {operation: INSERT_FIRST, value: {}}"), "~spec.configPatches[0].patch.operation"},
		{ef, patch("applyTo: CLUSTER, match: {listener: {name: a}}, patch: {operation: REMOVE}"), "spec.configPatches[0].match.listener"},
		{ef, patch("applyTo: HTTP_FILTER, match: {cluster: {name: a}}, patch: {operation: INSERT_FIRST, value: {name: a}}"),
			"~spec.configPatches[0].match.cluster"},
		{ef, patch("applyTo: CLUSTER, match: {listener: {name: a}}, patch: {operation: MERGE, value: {name: a}}"),
			"~spec.configPatches[0].match.listener"},
		{ef, patch("applyTo: NETWORK_FILTER, match: {listener: {listenerFilter: a}}, patch: {operation: INSERT_FIRST, value: {name: a}}"),
			"~spec.configPatches[0].match.listener.listenerFilter"},
		{vs, "{hosts: ['a*'], tls: [{match: [{sniHosts: ['a*']}], " + to + "}]}",
			"~spec.hosts[0] ~spec.tls[0].match[0].sniHosts[0] spec.tls[0].match[0].sniHosts[0]"},
		{vs, "{hosts: [a], tls: [{match: [{sniHosts: ['']}], " + to + "}]}", "spec.tls[0].match[0].sniHosts[0]"},
		{vs, "{hosts: [a_b], tls: [{match: [{sniHosts: [a_b]}], " + to + "}]}", "~spec.hosts[0] ~spec.tls[0].match[0].sniHosts[0]"},
		{ef, patch("applyTo: CLUSTER, match: {proxy: {proxyVersion: '('}}, patch: {operation: REMOVE}"),
			"spec.configPatches[0].match.proxy.proxyVersion"},
		{kinds.Telemetry, "{tracing: [{randomSamplingPercentage: 100.1}]}", "spec.tracing[0].randomSamplingPercentage"},
		{kinds.Telemetry, "{tracing: [{providers: [{name: a}, {name: b}]}]}", "~spec.tracing[0].providers"},
		{kinds.Telemetry, "{tracing: [{customTags: {a: {literal: {}}}}]}", "spec.tracing[0].customTags.a.literal.value"},
		{kinds.Telemetry, "{metrics: [{overrides: [{tagOverrides: {a: {operation: UPSERT}}}]}]}",
			"spec.metrics[0].overrides[0].tagOverrides.a.value"},
		{kinds.Telemetry, "{accessLogging: [{filter: {}}]}", "spec.accessLogging[0].filter.expression"},
		{kinds.Telemetry, "{accessLogging: [{providers: [{}]}]}", "spec.accessLogging[0].providers[0].name"},
		{kinds.ProxyConfig, "{concurrency: -1}", "spec.concurrency"},
		{kinds.ProxyConfig, "{concurrency: -1}", "spec.concurrency"},
		{kinds.ProxyConfig, "{environmentVariables: {'a=b': c}}", `~spec.environmentVariables.a=b`},
		{kinds.WasmPlugin, "{}", "spec.url"},
		{kinds.WasmPlugin, "{url: 'ftp://a'}", "spec.url"},
		{kinds.WasmPlugin, "{url: 'oci://a', sha256: abc}", "spec.sha256"},
		{kinds.WasmPlugin, "{url: 'oci://a', vmConfig: {env: [{name: a, valueFrom: HOST, value: b}]}}", "spec.vmConfig.env[0].value"},
		{kinds.TrafficExtension, "{}", "spec.wasm"},
		{kinds.TrafficExtension, "{lua: {}}", "spec.lua.inlineCode"},
		{kinds.TrafficExtension, "{lua: {inlineCode: 'function f() end'}}", ""},
		{kinds.TrafficExtension, "{lua: {inlineCode: 'function f( end'}}", "spec.lua.inlineCode"},
		{kinds.TrafficExtension, "{wasm: {}}", "spec.wasm.url"},

		{kinds.Service, "{ports: [{name: a, port: 80, targetPort: http}, {name: b, port: 80, protocol: UDP, targetPort: 53}]}", ""},
		{kinds.Service, "{ports: [{port: 0}]}", "spec.ports[0].port"},
		{kinds.Service, "{ports: [{name: a, port: 80}, {port: 81}]}", "spec.ports[1].name"},
		{kinds.Service, "{ports: [{name: a, port: 80}, {name: b, port: 80}]}", "spec.ports[1].port"},
		{kinds.Service, "{ports: [{port: 80, protocol: tcp}]}", "spec.ports[0].protocol"},
		{kinds.Service, "{clusterIP: 1.2.3}", "spec.clusterIP"},
		{kinds.Service, "{clusterIP: None}", ""},
		{kinds.Service, "{type: ExternalName}", "spec.externalName"},
		{kinds.KubeGateway, "{gatewayClassName: istio, listeners: [{name: a, port: 80, protocol: HTTPP}]}", ""},
		{kinds.KubeGateway, "{gatewayClassName: istio, listeners: [{name: a, port: 80, protocol: HTTP, hostname: 10.0.0.1}]}",
			"~spec.listeners[0].hostname"},
		{kinds.KubeGateway, "{gatewayClassName: istio, listeners: [{name: a, port: 80, protocol: HTTP, hostname: a_b}]}",
			"spec.listeners[0].hostname"},
		{kinds.HTTPRoute, "{hostnames: [web.example.1, '*.10']}", "~spec.hostnames[0] ~spec.hostnames[1]"},
		{kinds.HTTPRoute, "{rules: [{matches: [{path: {type: RegularExpression, value: '('}}]}]}", ""},
		{kinds.HTTPRoute, "{rules: [{matches: [{headers: [{name: a, type: RegularExpression, value: '('}]}]}]}", ""},
		{kinds.GRPCRoute, "{rules: [{matches: [{method: {type: RegularExpression, service: '('}}]}]}", ""},
		{kinds.TCPRoute, "{rules: [{backendRefs: [{name: a, port: 80, weight: 0}]}]}", "~spec.rules[0].backendRefs"},
	}
}

func TestMeaningOfEachField(t *testing.T) {
	for _, c := range semantics() {
		r := decode(document(c.kind, "spec:\n  "+c.spec+"\n"))
		var got []string
		for _, d := range r.Findings() {
			field := d.Field
			if d.Severity == diag.Warning {
				field = "~" + field
			}
			got = append(got, field)
			if d.Line < 1 || d.Column < 1 || d.Object == "" {
				t.Errorf("%s %s: no position or object in %+v", c.kind.Name, c.spec, d)
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s %s\n  found %v\n  want [%s]", c.kind.Name, c.spec, r.Findings(), c.want)
		}
		if usable := !HasErrors(r.Findings()); usable != (r.Documents[0].Object != nil) {
			t.Errorf("%s %s: usable %v", c.kind.Name, c.spec, !usable)
		}
	}
}

// The name of a Service's port says its protocol, and a slip in it says none.
func TestPortNames(t *testing.T) {
	for port, want := range map[string]string{
		"name: htpp": `spec.ports[0].name: the name "htpp" begins with no known protocol: ` +
			`proxies detect the protocol of each connection; did you mean "http"?`,
		"name: http_web":                   `did you mean "http-web"?`,
		"name: htttp-x":                    `did you mean "http-x"?`,
		"name: gprc-web":                   `did you mean "grpc-web"?`,
		"name: htpp, appProtocol: http":    "",
		"name: htpp, protocol: UDP":        "",
		"name: HTTP-web":                   "",
		"name: http_proxy":                 "",
		"name: web":                        "",
		"name: smtp":                       "",
		"name: rdp":                        "",
		"name: grpc-web-x, targetPort: 81": "",
	} {
		r := decode("apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {ports: [{port: 80, " + port + "}]}\n")
		list := r.Findings()
		if want == "" && len(list) > 0 ||
			want != "" && (len(list) != 1 || list[0].Severity != diag.Warning || !strings.Contains(list[0].String(), want)) {
			t.Errorf("%s: got %v, want %q", port, list, want)
		}
	}
}

// Every Istio kind has rules, and each rule a case that it refuses.
func TestEveryIstioKindHasCases(t *testing.T) {
	refused := map[*kinds.Kind]bool{}
	for _, c := range semantics() {
		if c.want != "" && c.want[0] != '~' {
			refused[c.kind] = true
		}
	}
	for _, k := range kinds.All() {
		if k.Istio && (rules(k) == nil || !refused[k]) {
			t.Errorf("%s has no rules or no case", k.Name)
		}
	}
}

func TestRegexBudgetOfAnObject(t *testing.T) {
	var b strings.Builder
	b.WriteString("{hosts: [a], http: [")
	for range 30 {
		b.WriteString("{match: [{uri: {regex: 'a{900}b{900}'}}], route: [{destination: {host: a}}]}, ")
	}
	r := decode(document(kinds.VirtualService, "spec:\n  "+b.String()+"]}\n"))
	if !slices.ContainsFunc(r.Findings(), func(d diag.Diagnostic) bool { return strings.Contains(d.Message, "50000") }) ||
		r.Documents[0].Object != nil {
		t.Errorf("findings %v", r.Findings())
	}
}

// TestBudgets: what takes long to check is checked up to a bound for the whole of it.
func TestBudgets(t *testing.T) {
	var filters, localities strings.Builder
	for i := range 5 {
		fmt.Fprintf(&filters, "{filter: {expression: '%d == %s1'}}, ", i, strings.Repeat(" ", expressionBytes-10))
	}
	for i := range maxLocalities + 3 {
		fmt.Fprintf(&localities, "{from: a%d, to: {b: 100}}, ", i)
	}
	for _, c := range []semantic{
		{kinds.Telemetry, "{accessLogging: [" + filters.String() + "]}", "spec.accessLogging[4].filter.expression"},
		{kinds.DestinationRule, "{host: a, trafficPolicy: {loadBalancer: {localityLbSetting: {distribute: [" + localities.String() + "]}}}}",
			"spec.trafficPolicy.loadBalancer.localityLbSetting.distribute[1000].from"},
	} {
		list := decode(document(c.kind, "spec:\n  "+c.spec+"\n")).Findings()
		if len(list) != 1 || list[0].Field != c.want || list[0].Severity != diag.Error {
			t.Errorf("%s: %v, want one of %s", c.kind.Name, list, c.want)
		}
	}
}
