package traffic

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strings"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
)

// Addresses of the mesh of drawn worlds.
const (
	drawnGatewayPod = "10.10.0.16"
	drawnEchoPod    = "10.10.0.11"
	drawnClientPod  = "10.10.0.13"
	drawnPlainPod   = "10.10.0.15"
)

// drawnYAML has what stays the same in all drawn worlds: two servers with sidecars, one without, two clients, and a
// gateway whose Service has other ports than its Pod.
var drawnYAML = suite.NamespacesYAML("istio-system", "a") +
	`apiVersion: v1
kind: Service
metadata: {name: echo, namespace: a}
spec:
  clusterIP: 10.96.0.10
  selector: {svc: echo}
  ports: [{name: http, port: 80, targetPort: 8080}, {name: http-alt, port: 8000, targetPort: 8080}]
---
` +
	suite.ServiceYAML("legacy", "a", "10.96.0.11") +
	suite.ServiceYAML("nobody", "a", "10.96.0.12") +
	suite.ServiceYAML("gateway", "a", "10.96.0.13", "{name: http, port: 80, targetPort: 8080}", "{name: https, port: 443, targetPort: 8443}") +
	suite.PodYAML("echo-1", "a", drawnEchoPod, `"-http=8080"`, suite.Sidecar+", svc: echo, version: v1") +
	suite.PodYAML("echo-2", "a", "10.10.0.12", `"-http=8080"`, suite.Sidecar+", svc: echo, version: v2") +
	suite.PodYAML("client", "a", drawnClientPod, "", suite.Sidecar) +
	suite.PodYAML("plain", "a", drawnPlainPod, "", suite.Outside) +
	suite.PodYAML("legacy", "a", "10.10.0.14", `"-http=8080"`, suite.Outside) +
	suite.GatewayPodYAML("gateway", "a", drawnGatewayPod)

// drawer draws the objects of a world, and requests, from a seed.
type drawer struct{ *rand.Rand }

// one returns one of some texts.
func (d drawer) one(list ...string) string { return list[d.IntN(len(list))] }

// in reports true once in n draws.
func (d drawer) in(n int) bool { return d.IntN(n) == 0 }

// list draws between least and most texts, in YAML's brackets.
func (d drawer) list(least, most int, draw func() string) string {
	var all []string
	for range least + d.IntN(most-least+1) {
		all = append(all, draw())
	}
	return "[" + strings.Join(all, ", ") + "]"
}

// The values of requests, and of the conditions that ask for them.
var (
	drawnPaths   = []string{"/", "/a", "/a/b", "/A", "/ab", "/c?q=1", "/c?q=2", "/a/../c", "/x1", "/x12/y"}
	drawnMethods = []string{"GET", "GET", "POST", "OPTIONS"}
	drawnOrigins = []string{"http://good.example.com", "http://bad.example.com"}
	drawnUsers   = []string{"jason", "mary"}
	drawnHosts   = []string{"a.example.com", "b.example.com", "example.org"}
)

// world draws a world: the objects that are added to drawnYAML.
func (d drawer) world() string {
	var all []string
	add := func(kind, version, name, spec string) {
		all = append(all, fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: %s, namespace: a}\nspec: %s\n", version, kind, name, spec))
	}
	const networking, security = "networking.istio.io/v1", "security.istio.io/v1"
	for n := range 1 + d.IntN(2) {
		add("Gateway", networking, fmt.Sprintf("gw-%d", n), "{selector: {app: gateway}, servers: "+d.servers()+"}")
	}
	add("DestinationRule", networking, "echo", "{host: echo, subsets: [{name: v1, labels: {version: v1}}, {name: v2, labels: {version: v2}}, "+
		"{name: v3, labels: {version: v3}}]"+d.trafficPolicy()+"}")
	if d.in(3) {
		add("DestinationRule", networking, "other", fmt.Sprintf("{host: %q%s}", d.one("legacy", "nobody", "*.local", "*.a.svc.cluster.local"),
			d.trafficPolicy()))
	}
	if d.in(3) {
		add("PeerAuthentication", security, "all", "{"+d.one(`mtls: {mode: STRICT}`, `mtls: {mode: PERMISSIVE}`, `mtls: {mode: DISABLE}`,
			`selector: {matchLabels: {svc: echo}}, mtls: {mode: STRICT}, portLevelMtls: {8080: {mode: PERMISSIVE}}`,
			`selector: {matchLabels: {version: v1}}, mtls: {mode: DISABLE}`)+"}")
	}
	if d.in(2) {
		add("VirtualService", networking, "mesh", "{hosts: ["+d.one("echo", "legacy", "echo, legacy", "echo.a.svc.cluster.local")+"], http: "+
			d.list(1, 5, d.rule)+"}")
	}
	for n := range d.IntN(3) {
		hosts := d.one(`"*"`, `"*.example.com"`, "a.example.com", "a.example.com, b.example.com", "example.org")
		gateways := d.one("gw-0", "gw-1", "gw-0, gw-1", "gw-0, mesh")
		if hosts == `"*"` { // not for the mesh
			gateways = "gw-0, gw-1"
		}
		add("VirtualService", networking, fmt.Sprintf("ingress-%d", n), "{hosts: ["+hosts+"], gateways: ["+gateways+"], http: "+
			d.list(1, 5, d.rule)+"}")
	}
	if d.in(2) {
		add("VirtualService", networking, "root", "{hosts: [a.example.com], gateways: [gw-0], http: [{match: ["+d.match()+
			"], delegate: {name: child}}, {match: [{uri: {prefix: /x}}], delegate: {name: child}}, "+d.rule()+"]}")
		add("VirtualService", networking, "child", "{http: "+d.list(1, 3, d.rule)+"}")
	}
	for n := range d.IntN(3) {
		add("AuthorizationPolicy", security, fmt.Sprintf("policy-%d", n), "{selector: {matchLabels: {"+
			d.one("svc: echo", "app: gateway", "app: gateway", "version: v1")+"}}, action: "+d.one("DENY", "ALLOW")+", rules: "+
			d.list(1, 2, d.policyRule)+"}")
	}
	return strings.Join(all, "---\n")
}

// servers draws the servers of a Gateway. The names of their ports differ.
func (d drawer) servers() string {
	n := 0
	return d.list(1, 3, func() string { n++; return d.server(n) })
}

// server draws the server of a number.
func (d drawer) server(n int) string {
	hosts := d.one(`"*"`, `"*"`, `"*.example.com"`, "a.example.com", "b.example.com")
	switch d.IntN(5) {
	case 0:
		return fmt.Sprintf("{port: {number: 80, name: http-%d, protocol: HTTP}, hosts: [%s], tls: {httpsRedirect: true}}", n, hosts)
	case 1, 2:
		return fmt.Sprintf("{port: {number: 80, name: http-%d, protocol: HTTP}, hosts: [%s]}", n, hosts)
	}
	return fmt.Sprintf("{port: {number: 443, name: https-%d, protocol: HTTPS}, hosts: [%s], tls: {mode: %s, credentialName: cert}}", n, hosts,
		d.one("SIMPLE", "SIMPLE", "MUTUAL", "OPTIONAL_MUTUAL"))
}

// trafficPolicy draws the TLS settings of a DestinationRule.
func (d drawer) trafficPolicy() string {
	switch d.IntN(6) {
	case 0:
		return ", trafficPolicy: {tls: {mode: ISTIO_MUTUAL}}"
	case 1:
		return ", trafficPolicy: {tls: {mode: DISABLE}}"
	case 2:
		return ", trafficPolicy: {tls: {mode: SIMPLE, insecureSkipVerify: true}}"
	}
	return ""
}

// text draws a StringMatch of one of some values.
func (d drawer) text(values []string) string {
	v := values[d.IntN(len(values))]
	v, _, _ = strings.Cut(v, "?")
	switch d.IntN(4) {
	case 0:
		return fmt.Sprintf("{prefix: %q}", v[:1+d.IntN(len(v))])
	case 1:
		return fmt.Sprintf("{regex: %q}", d.one(".*", v, v+".*", v[:1]+"[a-z0-9/]*", "[^/]+"))
	}
	return fmt.Sprintf("{exact: %q}", v)
}

// match draws a match of a rule.
func (d drawer) match() string {
	var all []string
	maybe := func(n int, text func() string) {
		if d.in(n) {
			all = append(all, text())
		}
	}
	maybe(2, func() string { return "uri: " + d.text(drawnPaths) })
	maybe(6, func() string { return "ignoreUriCase: true" })
	maybe(4, func() string { return "method: " + d.text(drawnMethods) })
	maybe(4, func() string { return "headers: {x-user: " + d.one("{}", d.text(drawnUsers)) + "}" })
	maybe(6, func() string { return "withoutHeaders: {x-user: " + d.one("{}", d.text(drawnUsers)) + "}" })
	maybe(5, func() string { return `queryParams: {q: {exact: "1"}}` })
	maybe(6, func() string { return "authority: " + d.text(drawnHosts) })
	maybe(8, func() string { return "port: " + d.one("80", "443", "8000", "8080") })
	maybe(8, func() string { return "gateways: [" + d.one("gw-0", "mesh", "gw-1") + "]" })
	maybe(8, func() string { return "sourceLabels: {app: " + d.one("client", "gateway", "other") + "}" })
	maybe(8, func() string { return "scheme: {exact: " + d.one("http", "https") + "}" })
	if len(all) == 0 {
		return `{uri: {prefix: "/"}}`
	}
	return "{" + strings.Join(all, ", ") + "}"
}

// rule draws a rule for HTTP.
func (d drawer) rule() string {
	var all []string
	if !d.in(4) {
		all = append(all, "match: "+d.list(1, 2, d.match))
	}
	switch d.IntN(8) {
	case 0:
		all = append(all, "redirect: "+d.one("{uri: /a}", "{authority: b.example.com, redirectCode: 307}", "{scheme: https}",
			"{uri: /c, port: 8080}"))
	case 1:
		all = append(all, "directResponse: {status: "+d.one("200", "204", "418", "503")+"}")
	default:
		all = append(all, "route: ["+d.destination()+"]")
		if d.in(5) {
			all = append(all, "rewrite: "+d.one("{uri: /}", "{uri: /a}", "{authority: echo}", "{uri: /c, authority: legacy}"))
		}
		if d.in(5) {
			all = append(all, "fault: {abort: {percentage: {value: "+d.one("100", "100", "0", "50")+"}, httpStatus: 418}}")
		}
	}
	if d.in(3) {
		all = append(all, "corsPolicy: {allowOrigins: ["+d.one("{exact: http://good.example.com}", `{regex: ".*"}`, "{prefix: http://good}")+
			"], allowMethods: [GET, POST]"+d.one("", "", ", unmatchedPreflights: IGNORE", ", unmatchedPreflights: FORWARD")+"}")
	}
	if d.in(4) {
		all = append(all, "headers: {request: {"+d.one("set: {x-user: mary}", "remove: [x-user]", "add: {x-added: yes-it-is}")+"}}")
	}
	return "{" + strings.Join(all, ", ") + "}"
}

func (d drawer) destination() string {
	return d.one("{destination: {host: echo, subset: v1, port: {number: 80}}}", "{destination: {host: echo, subset: v2, port: {number: 80}}}",
		"{destination: {host: echo, port: {number: 80}}}", "{destination: {host: echo, port: {number: 8000}}}",
		"{destination: {host: echo, subset: v3, port: {number: 80}}}", "{destination: {host: legacy}}", "{destination: {host: nobody}}",
		"{destination: {host: missing.example.net}}", "{destination: {host: echo, subset: v9, port: {number: 80}}}",
		"{destination: {host: echo, port: {number: 81}}}")
}

// policyRule draws a rule of an AuthorizationPolicy.
func (d drawer) policyRule() string {
	var all []string
	if d.in(2) {
		all = append(all, "from: [{source: {"+d.one(`principals: ["*/sa/client"]`, `notPrincipals: ["*/sa/gateway"]`, "namespaces: [a]",
			"ipBlocks: ["+drawnPlainPod+"]", "notIpBlocks: [10.10.0.0/28]", "remoteIpBlocks: [192.0.2.0/24]", "remoteIpBlocks: ["+drawnPlainPod+"]",
			"notRemoteIpBlocks: [192.0.2.7]", `principals: ["*"]`)+"}}]")
	}
	if d.in(2) {
		all = append(all, "to: [{operation: {"+d.one("methods: [GET]", "methods: [OPTIONS, POST]", `notMethods: [GET]`, `paths: ["/a*"]`,
			`paths: ["/a"]`,
			`notPaths: ["/c"]`, `paths: ["/a/{*}"]`, `hosts: ["*.example.com"]`, "hosts: [a.example.com]", `ports: ["8080"]`, `ports: ["80"]`,
			`ports: ["8443"]`, `notPorts: ["443"]`)+"}}]")
	}
	if d.in(3) {
		all = append(all, "when: [{key: "+d.one(`"request.headers[x-user]", values: [jason]`, `"request.headers[x-user]", notValues: [jason]`,
			`connection.sni, values: ["a.example.com"]`, `destination.port, values: ["8080"]`, `source.ip, values: [10.10.0.0/24]`,
			`remote.ip, values: [192.0.2.7]`, `"request.headers[origin]", values: ["http://bad*"]`)+"}]")
	}
	if len(all) == 0 {
		return "{}"
	}
	return "{" + strings.Join(all, ", ") + "}"
}

// drawnRequest is a request and what is known about its client.
type drawnRequest struct {
	request
	source      string // whose proxy it comes to first, or the Pod that sends it
	port        int    // of the called host
	tls         bool
	certificate bool // whether the client shows one to the gateway
}

// client returns the address of the client that calls the gateway, or "".
func (r drawnRequest) client() string {
	if r.source == "gateway.a" {
		return drawnPlainPod
	}
	return ""
}

// request draws a request.
func (d drawer) request() drawnRequest {
	r := drawnRequest{request: request{method: d.one(drawnMethods...), path: d.one(drawnPaths...), headers: map[string]string{}}}
	if d.in(3) {
		r.headers["x-user"] = d.one(drawnUsers...)
	}
	if d.in(3) || r.method == "OPTIONS" && !d.in(4) {
		r.headers["origin"] = d.one(drawnOrigins...)
		if !d.in(4) {
			r.headers["access-control-request-method"] = d.one("GET", "PUT")
		}
	}
	if d.in(4) {
		r.headers["x-forwarded-for"] = d.one("192.0.2.7", "198.51.100.1, 192.0.2.7", drawnPlainPod)
	}
	switch d.IntN(5) {
	case 0, 1: // from a sidecar
		r.from, r.source = "client", "client.a"
		r.host = d.one("echo", "echo", "echo.a.svc.cluster.local", "legacy", "nobody")
		r.port = 80
		if strings.HasPrefix(r.host, "echo") && d.in(3) {
			r.port = 8000
		}
		r.address = net.JoinHostPort(map[string]string{"legacy": "10.96.0.11", "nobody": "10.96.0.12"}[r.host], fmt.Sprint(r.port))
		if strings.HasPrefix(r.host, "echo") {
			r.address = net.JoinHostPort("10.96.0.10", fmt.Sprint(r.port))
		}
	case 2: // past all proxies but the server's
		r.from, r.source, r.port = "plain", "plain.a", 8080
		r.host, r.address = drawnEchoPod, drawnEchoPod+":8080"
	default: // through the gateway
		r.from, r.source, r.host, r.port = "plain", "gateway.a", d.one(drawnHosts...), 80
		r.address = drawnGatewayPod + ":8080"
		if d.in(2) {
			r.port, r.tls, r.certificate = 443, true, d.in(3)
			r.address = drawnGatewayPod + ":8443"
		}
	}
	return r
}
