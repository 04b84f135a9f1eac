package trace_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/inspect/trace"
)

// resource reads a resource of a proxy.
func resource(t *testing.T, name string, m proto.Message, text string) *envoy.Resource {
	t.Helper()
	if err := protojson.Unmarshal([]byte(text), m); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return envoy.NewResource(name, m)
}

const types = "type.googleapis.com/envoy.extensions.filters."

// http returns a proxy with one listener of HTTP, for port 80. manager is what its connection manager has beside
// routes; hosts are the virtual hosts.
func http(t *testing.T, manager, hosts string) trace.Config {
	t.Helper()
	if manager != "" {
		manager += ","
	}
	return with(t, trace.Config{}, "0.0.0.0_80", fmt.Sprintf(
		`{"name":"0.0.0.0_80","address":{"socketAddress":{"address":"0.0.0.0","portValue":80}},"filterChains":[{"filters":[
		{"name":"hcm","typedConfig":{"@type":"%snetwork.http_connection_manager.v3.HttpConnectionManager",
		%s"routeConfig":{"virtualHosts":%s}}}]}]}`, types, manager, hosts))
}

// filters returns the HTTP filters of a connection manager, by their types. A filter has the name of its package.
func filters(list ...string) string {
	for i, f := range list {
		name, _, _ := strings.Cut(f, ".")
		list[i] = fmt.Sprintf(`{"name":"envoy.filters.http.%s","typedConfig":{"@type":"%shttp.%s"}}`, name, types, f)
	}
	return `"httpFilters":[` + strings.Join(list, ",") + `]`
}

// with adds a listener to what a proxy is sent.
func with(t *testing.T, c trace.Config, name, listener string) trace.Config {
	t.Helper()
	c[envoy.ListenerType] = append(c[envoy.ListenerType], resource(t, name, &listenerv3.Listener{}, listener))
	return c
}

// cluster adds a cluster with endpoints to what a proxy is sent.
func cluster(t *testing.T, c trace.Config, name string, addresses ...string) {
	t.Helper()
	c[envoy.ClusterType] = append(c[envoy.ClusterType], resource(t, name, &clusterv3.Cluster{}, `{"name":"`+name+`","type":"EDS"}`))
	var list []string
	for _, a := range addresses {
		address, health, _ := strings.Cut(a, " ")
		if health == "" {
			health = "HEALTHY"
		}
		list = append(list, fmt.Sprintf(`{"healthStatus":%q,"endpoint":{"address":{"socketAddress":{"address":%q,"portValue":80}}}}`,
			health, address))
	}
	c[envoy.EndpointType] = append(c[envoy.EndpointType],
		resource(t, name, &endpointv3.ClusterLoadAssignment{},
			`{"clusterName":"`+name+`","endpoints":[{"lbEndpoints":[`+strings.Join(list, ",")+`]}]}`))
}

func follow(t *testing.T, c trace.Config, r trace.Request) *trace.Answer {
	t.Helper()
	if r.Port == 0 {
		r.Port = 80
	}
	a, err := trace.Follow(c, r)
	must.Succeed(t, err)
	return a
}

// step returns the step of that kind, or one without a name.
func step(a *trace.Answer, what string) trace.Step {
	for _, s := range a.Steps {
		if s.What == what {
			return s
		}
	}
	return trace.Step{}
}

const everything = `[{"name":"all","domains":["*"],"routes":[{"match":{"prefix":"/"},"directResponse":{"status":200}}]}]`

// TestPaths: paths are normalized as a connection manager is told, before anything looks at them.
func TestPaths(t *testing.T) {
	for _, c := range []struct{ manager, path, want string }{
		{``, "/a/../b", "/a/../b"},
		{`"normalizePath":true`, "/a/../b", "/b"},
		{`"normalizePath":true`, "/a/./b/..", "/a/"},
		{`"normalizePath":true`, "/../../a", "/a"},
		{`"normalizePath":true`, "/%61%2e%2E/b?%61", "/a../b?%61"},
		{`"normalizePath":true`, "/%2e%2e/b", "/b"},
		{`"normalizePath":true`, `/a\b`, "/a/b"},
		{`"normalizePath":true`, "/a%2fb", "/a%2fb"},
		{`"normalizePath":true`, "/a%00b", "400"},
		{`"normalizePath":true`, "//a//b", "//a//b"},
		{`"normalizePath":true,"mergeSlashes":true`, "//a///b/", "/a/b/"},
		{`"normalizePath":true,"mergeSlashes":true,"pathWithEscapedSlashesAction":"UNESCAPE_AND_FORWARD"`, "/a%2F%2fb%5Cc", "/a/b/c"},
		{`"pathWithEscapedSlashesAction":"UNESCAPE_AND_FORWARD"`, "/a%2Fb?c%2Fd", "/a/b?c%2Fd"},
		{`"pathWithEscapedSlashesAction":"REJECT_REQUEST"`, "/a%5cb", "400"},
		{`"pathWithEscapedSlashesAction":"KEEP_UNCHANGED"`, "/a%5cb", "/a%5cb"},
		{``, "/a#b?c", "/a"},
	} {
		a := follow(t, http(t, c.manager, everything), trace.Request{Path: c.path})
		got := a.Forwarded.Path
		if a.Status != 200 {
			got = fmt.Sprint(a.Status)
		} else if p := step(a, "path").Name; p != "" {
			got = p
		}
		if got != c.want {
			t.Errorf("{%s} %s: %s, not %s", c.manager, c.path, got, c.want)
		}
	}
}

// TestHosts: the virtual host is the exact one, or else the longest pattern, whatever their order.
func TestHosts(t *testing.T) {
	hosts := []string{"a.b.example", "*.b.example", "*.example", "a.b.*", "a.*", "other.example:80"}
	var list []string
	for _, h := range hosts {
		list = append(list, fmt.Sprintf(`{"name":%q,"domains":[%q],"routes":[{"match":{"prefix":"/"},"directResponse":{"status":200}}]}`, h, h))
	}
	backwards := slices.Clone(list)
	slices.Reverse(backwards)
	for _, order := range [][]string{list, backwards} {
		c := http(t, "", "["+strings.Join(order, ",")+"]")
		for authority, want := range map[string]string{
			"a.b.example": "a.b.example", "A.B.Example": "a.b.example", "x.b.example": "*.b.example", "b.example": "*.example",
			"x.y.b.example": "*.b.example",
			"a.b.org":       "a.b.*", "a.org": "a.*", "other.example:80": "other.example:80", "other.example": "*.example", "org": "", "a.": "",
			".example": "",
		} {
			a := follow(t, c, trace.Request{Authority: authority})
			if got := step(a, "virtual host").Name; got != want || (want == "") != (a.Status == 404) {
				t.Errorf("%s: %q with %d, not %q", authority, got, a.Status, want)
			}
		}
	}
}

// TestMatches: a route matches as Envoy matches it.
func TestMatches(t *testing.T) {
	get := func(path string, headers ...string) trace.Request {
		r := trace.Request{Path: path, Headers: map[string]string{}}
		for i := 0; i < len(headers); i += 2 {
			r.Headers[headers[i]] = headers[i+1]
		}
		return r
	}
	header := func(m string) string { return `{"prefix":"/","headers":[` + m + `]}` }
	query := func(m string) string { return `{"prefix":"/","queryParameters":[` + m + `]}` }
	for _, c := range []struct {
		match string
		r     trace.Request
		want  bool
	}{
		{`{"prefix":"/a"}`, get("/ab"), true},
		{`{"prefix":"/a"}`, get("/A"), false},
		{`{"prefix":"/a","caseSensitive":false}`, get("/Ab"), true},
		{`{"pathSeparatedPrefix":"/a"}`, get("/a"), true},
		{`{"pathSeparatedPrefix":"/a"}`, get("/a/b?c"), true},
		{`{"pathSeparatedPrefix":"/a"}`, get("/ab"), false},
		{`{"path":"/a"}`, get("/a?x=1"), true},
		{`{"path":"/a"}`, get("/a/"), false},
		{`{"safeRegex":{"regex":"/v[0-9]+"}}`, get("/v12"), true},
		{`{"safeRegex":{"regex":"/v[0-9]+"}}`, get("/v12/x"), false},
		{`{"safeRegex":{"regex":"/a|/b"}}`, get("/ab"), false},
		{`{"connectMatcher":{}}`, get("/"), false},
		{`{"connectMatcher":{}}`, trace.Request{Method: "CONNECT"}, true},
		{header(`{"name":"x"}`), get("/", "x", ""), true},
		{header(`{"name":"x"}`), get("/"), false},
		{header(`{"name":"X","stringMatch":{"exact":"v"}}`), get("/", "x", "v"), true},
		{header(`{"name":"x","stringMatch":{"exact":"v"}}`), get("/", "x", "V"), false},
		{header(`{"name":"x","stringMatch":{"exact":"v","ignoreCase":true}}`), get("/", "x", "V"), true},
		{header(`{"name":"x","stringMatch":{"prefix":"v"}}`), get("/", "x", "vw"), true},
		{header(`{"name":"x","stringMatch":{"suffix":"v"}}`), get("/", "x", "vw"), false},
		{header(`{"name":"x","stringMatch":{"contains":"v"}}`), get("/", "x", "uvw"), true},
		{header(`{"name":"x","stringMatch":{"safeRegex":{"regex":"v+"}}}`), get("/", "x", "vvv"), true},
		{header(`{"name":"x","stringMatch":{"safeRegex":{"regex":"v+"}}}`), get("/", "x", "vvw"), false},
		{header(`{"name":"x","stringMatch":{"exact":"v"},"invertMatch":true}`), get("/", "x", "w"), true},
		{header(`{"name":"x","stringMatch":{"exact":"v"},"invertMatch":true}`), get("/"), false},
		{header(`{"name":"x","stringMatch":{"exact":"v"},"invertMatch":true,"treatMissingHeaderAsEmpty":true}`), get("/"), true},
		{header(`{"name":"x","presentMatch":false}`), get("/"), true},
		{header(`{"name":"x","presentMatch":true,"invertMatch":true}`), get("/"), true},
		{header(`{"name":"x","presentMatch":true,"invertMatch":true}`), get("/", "x", "v"), false},
		{header(`{"name":"x","rangeMatch":{"start":"1","end":"3"}}`), get("/", "x", "2"), true},
		{header(`{"name":"x","rangeMatch":{"start":"1","end":"3"}}`), get("/", "x", "3"), false},
		{header(`{"name":":method","stringMatch":{"exact":"PUT"}}`), trace.Request{Method: "PUT"}, true},
		{header(`{"name":":method","stringMatch":{"exact":"PUT"}}`), get("/"), false},
		{header(`{"name":":scheme","stringMatch":{"exact":"http"}}`), get("/"), true},
		{header(`{"name":":authority","stringMatch":{"exact":"h"}}`), trace.Request{Authority: "h"}, true},
		{header(`{"name":"a"},{"name":"b"}`), get("/", "a", "1"), false},
		{query(`{"name":"q","stringMatch":{"exact":"1"}}`), get("/?p=2&q=1"), true},
		{query(`{"name":"q","stringMatch":{"exact":"1"}}`), get("/?q=2"), false},
		{query(`{"name":"q","stringMatch":{"exact":""}}`), get("/"), false},
		{query(`{"name":"q","presentMatch":true}`), get("/?q"), true},
		{query(`{"name":"q","presentMatch":true}`), get("/?qq=1"), false},
		{`{"prefix":"/","grpc":{}}`, get("/", "content-type", "application/grpc+proto"), true},
		{`{"prefix":"/","grpc":{}}`, get("/", "content-type", "text/html"), false},
		{`{"prefix":"/","dynamicMetadata":[{"filter":"f","path":[{"key":"k"}],"value":{"presentMatch":true}}]}`, get("/"), false},
	} {
		config := http(t, "", `[{"name":"all","domains":["*"],"routes":[{"name":"it","match":`+c.match+`,"directResponse":{"status":204}}]}]`)
		a := follow(t, config, c.r)
		if got := a.Status == 204; got != c.want {
			t.Errorf("%s, %+v: matches: %t", c.match, c.r, got)
		}
		lost := step(a, "route").Lost
		if !c.want && (len(lost) != 1 || lost[0].Reason == "" || a.Status != 404) {
			t.Errorf("%s, %+v: nothing says why it does not match: %+v", c.match, c.r, a)
		}
	}
}

// TestShares: weights become shares, and clusters that are not there or have no endpoint say so.
func TestShares(t *testing.T) {
	for _, c := range []struct{ route, want string }{
		{`{"cluster":"one"}`, "200: one 100"},
		{`{"weightedClusters":{"clusters":[{"name":"one","weight":1},{"name":"two","weight":3}]}}`, "200: one 25, two 75"},
		{`{"weightedClusters":{"clusters":[{"name":"one","weight":1},{"name":"two","weight":1},{"name":"one","weight":2}]}}`,
			"200: one 75, two 25"},
		{`{"weightedClusters":{"clusters":[{"name":"one","weight":0},{"name":"two","weight":5}]}}`, "200: two 100"},
		{`{"weightedClusters":{"clusters":[{"name":"one","weight":1},{"name":"none","weight":1}]}}`, "200: one 50, none 50"},
		{`{"cluster":"none"}`, "503: none 100"},
		{`{"cluster":"none","clusterNotFoundResponseCode":"NOT_FOUND"}`, "404: none 100"},
		{`{"cluster":"none","clusterNotFoundResponseCode":"INTERNAL_SERVER_ERROR"}`, "500: none 100"},
		{`{"cluster":"empty"}`, "503: empty 100"},
		{`{"cluster":"ill"}`, "503: ill 100"},
		{`{"cluster":"passthrough"}`, "200: passthrough 100"},
		{`{"cluster":"called"}`, "200: called 100"},
		{`{"clusterHeader":"x"}`, "200: "},
	} {
		config := http(t, "", `[{"name":"all","domains":["*"],"routes":[{"match":{"prefix":"/"},"route":`+c.route+`}]}]`)
		cluster(t, config, "one", "10.0.0.1", "10.0.0.2 UNHEALTHY")
		cluster(t, config, "two", "10.0.0.3 DEGRADED")
		cluster(t, config, "empty")
		cluster(t, config, "ill", "10.0.0.4 UNHEALTHY")
		config[envoy.ClusterType] = append(config[envoy.ClusterType],
			resource(t, "passthrough", &clusterv3.Cluster{}, `{"name":"passthrough","type":"ORIGINAL_DST"}`))
		config[envoy.ClusterType] = append(config[envoy.ClusterType],
			resource(t, "called", &clusterv3.Cluster{}, `{"name":"called","clusterType":{"name":"envoy.clusters.dynamic_forward_proxy"}}`))
		a := follow(t, config, trace.Request{})
		var shares []string
		for _, x := range a.Targets {
			shares = append(shares, fmt.Sprintf("%s %g", x.Cluster, x.Share))
		}
		if got := fmt.Sprintf("%d: %s", a.Status, strings.Join(shares, ", ")); got != c.want {
			t.Errorf("%s: %s, not %s", c.route, got, c.want)
		}
	}
}

// TestActions: what a route does beside leading somewhere is told, and what it answers by itself is its answer.
func TestActions(t *testing.T) {
	fault := func(f string) string {
		return `,"typedPerFilterConfig":{"envoy.filters.http.fault":{"@type":"` + types + `http.fault.v3.HTTPFault",` + f + `}}`
	}
	for _, c := range []struct {
		action, want string
		status       int
	}{
		{`"redirect":{}`, "redirect to the URL that is called", 301},
		{`"redirect":{"httpsRedirect":true,"portRedirect":8443}`, "redirect to scheme https, port 8443", 301},
		{`"route":{"cluster":"one"},"requestHeadersToAdd":[{"header":{"key":"a","value":"b"}}]`, "it adds request header a: b", 200},
		{`"route":{"cluster":"one"},"responseHeadersToRemove":["a"]`, "it removes response header a", 200},
		{`"redirect":{"hostRedirect":"h","pathRedirect":"/p","responseCode":"FOUND"}`, "redirect to host h, path /p", 302},
		{`"redirect":{"responseCode":"SEE_OTHER"}`, "", 303},
		{`"redirect":{"responseCode":"TEMPORARY_REDIRECT"}`, "", 307},
		{`"redirect":{"prefixRewrite":"/q","responseCode":"PERMANENT_REDIRECT"}`, "redirect to prefix of the path /q", 308},
		{`"directResponse":{"status":418}`, "", 418},
		{`"route":{"cluster":"one","timeout":"0s"}`, "no timeout", 200},
		{`"route":{"cluster":"one","timeout":"3s"}`, "timeout 3s", 200},
		{`"route":{"cluster":"one","retryPolicy":{"retryOn":"5xx"}}`, "1 retry on 5xx", 200},
		{`"route":{"cluster":"one","retryPolicy":{"retryOn":"5xx","numRetries":0}}`, "0 retries on 5xx", 200},
		{`"route":{"cluster":"one","retryPolicy":{"retryOn":"reset","numRetries":4,"perTryTimeout":"2s"}}`,
			"4 retries on reset, 2s for each try", 200},
		{`"route":{"cluster":"one","requestMirrorPolicies":[{"cluster":"m"}]}`, "mirrored to m", 200},
		{`"route":{"cluster":"one"}` + fault(`"abort":{"httpStatus":503,"percentage":{"numerator":100}}`),
			"fault: 100 % of requests are answered with status 503", 503},
		{`"route":{"cluster":"one"}` + fault(`"abort":{"httpStatus":503,"percentage":{"numerator":500000,"denominator":"MILLION"}}`),
			"fault: 50 % of requests are answered with status 503", 200},
		{`"route":{"cluster":"one"}` + fault(`"delay":{"fixedDelay":"2s","percentage":{"numerator":1,"denominator":"TEN_THOUSAND"}}`),
			"fault: 0.01 % of requests are delayed by 2s", 200},
		{`"nonForwardingAction":{}`, "", 200},
	} {
		config := http(t, filters("fault.v3.HTTPFault"), `[{"name":"all","domains":["*"],"routes":[{"match":{"prefix":"/"},`+c.action+`}]}]`)
		cluster(t, config, "one", "10.0.0.1")
		a := follow(t, config, trace.Request{})
		if a.Status != c.status || c.want != "" && !slices.Contains(step(a, "route").Details, c.want) {
			t.Errorf("%s: %d, %q, not %d, %q", c.action, a.Status, step(a, "route").Details, c.status, c.want)
		}
	}
}

// TestPlaintextIsRedirected checks that a virtual host that demands TLS answers plaintext by a redirect, whatever its
// routes are, and routes what came by TLS.
func TestPlaintextIsRedirected(t *testing.T) {
	const socket = `"transportSocket":{"name":"tls",` +
		`"typedConfig":{"@type":"type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext"}},`
	demands := strings.Replace(everything, `"domains"`, `"requireTls":"ALL","domains"`, 1)
	for _, c := range []struct {
		socket, hosts string
		want          int
	}{{"", demands, 301}, {socket, demands, 200}, {"", everything, 200}} {
		config := with(t, trace.Config{}, "l", fmt.Sprintf(
			`{"name":"l","address":{"socketAddress":{"address":"0.0.0.0","portValue":80}},"filterChains":[{%s"filters":[
			{"name":"hcm","typedConfig":{"@type":"%snetwork.http_connection_manager.v3.HttpConnectionManager",
			  "routeConfig":{"virtualHosts":%s}}}]}]}`, c.socket, types, c.hosts))
		if a := follow(t, config, trace.Request{Gateway: true, TLS: c.socket != ""}); a.Status != c.want || !a.Answered {
			t.Errorf("%s%s: %d %q, not %d", c.socket, c.hosts, a.Status, a.Reason, c.want)
		}
	}
}

// TestForwarded: a request is passed on with the host, the path and the headers that routes make of it. What a route
// says of a header comes before what its virtual host says.
func TestForwarded(t *testing.T) {
	for _, c := range []struct{ route, path, want string }{
		{`"match":{"prefix":"/a"},"route":{"cluster":"one"}`, "/ab?c", "h/ab?c"},
		{`"match":{"prefix":"/a"},"route":{"cluster":"one","prefixRewrite":"/x"}`, "/ab?c", "h/xb?c x-envoy-original-path=/ab?c"},
		{`"match":{"path":"/a"},"route":{"cluster":"one","prefixRewrite":"/x"}`, "/a?c", "h/x?c x-envoy-original-path=/a?c"},
		{`"match":{"pathSeparatedPrefix":"/a"},"route":{"cluster":"one","prefixRewrite":"/x"}`, "/a/b", "h/x/b x-envoy-original-path=/a/b"},
		{`"match":{"prefix":"/"},"route":{"cluster":"one","regexRewrite":{"pattern":{"regex":"^/v([0-9])/(.*)$"},"substitution":"/\\2-\\1$"}}`,
			"/v1/x?y", "h/x-1$?y x-envoy-original-path=/v1/x?y"},
		{`"match":{"prefix":"/"},"route":{"cluster":"one","hostRewriteLiteral":"other"}`, "/", "other/"},
		{`"match":{"prefix":"/"},"route":{"cluster":"one"},"requestHeadersToRemove":["X-Gone"]`, "/", "h/ -x-gone"},
		{`"match":{"prefix":"/"},"route":{"cluster":"one"},"requestHeadersToAdd":[{"header":{"key":"X-Gone","value":"2"}}]`, "/",
			"h/ x-gone=1,2"},
		{`"match":{"prefix":"/"},"route":{"cluster":"one"},` +
			`"requestHeadersToAdd":[{"header":{"key":"x-gone","value":"2"},"appendAction":"OVERWRITE_IF_EXISTS_OR_ADD"}]`, "/", "h/ x-gone=2"},
		{`"match":{"prefix":"/"},"route":{"cluster":"one"},` +
			`"requestHeadersToAdd":[{"header":{"key":"x-gone","value":"2"},"appendAction":"ADD_IF_ABSENT"}]`, "/", "h/"},
		{`"match":{"prefix":"/"},"route":{"cluster":"one"},` +
			`"requestHeadersToAdd":[{"header":{"key":"new","value":"3"},"appendAction":"ADD_IF_ABSENT"}]`, "/", "h/ new=3"},
	} {
		config := http(t, "", `[{"name":"all","domains":["*"],"routes":[{`+c.route+`}]}]`)
		cluster(t, config, "one", "10.0.0.1")
		had := map[string]string{"x-gone": "1", "x-forwarded-proto": "http"}
		f := follow(t, config, trace.Request{Authority: "h", Path: c.path, Headers: had}).Forwarded
		got := f.Authority + f.Path
		for name, v := range f.Headers {
			if had[name] != v {
				got += " " + name + "=" + v
			}
		}
		if _, there := f.Headers["x-gone"]; !there {
			got += " -x-gone"
		}
		if got != c.want {
			t.Errorf("{%s}, %s: %s, not %s", c.route, c.path, got, c.want)
		}
		if len(had) != 2 || had["x-gone"] != "1" {
			t.Fatal("the request that was asked about has changed")
		}
	}
}

// TestChains: Envoy narrows the chains of a listener by port, address, server name, transport, protocol and source, one
// after the other, and never goes back.
func TestChains(t *testing.T) {
	chain := func(name, match string) string {
		return fmt.Sprintf(`{"name":%q,"filterChainMatch":{%s},"filters":[{"name":"tcp",`+
			`"typedConfig":{"@type":"%snetwork.tcp_proxy.v3.TcpProxy","statPrefix":"x","cluster":%q}}]}`, name, match, types, name)
	}
	const inspectors = `"listenerFilters":[{"name":"envoy.filters.listener.tls_inspector"},{"name":"envoy.filters.listener.http_inspector"}]`
	start := func(inspect string, chains ...string) trace.Config {
		if inspect != "" {
			inspect += ","
		}
		c := with(t, trace.Config{}, "virtualOutbound",
			`{"name":"virtualOutbound",`+inspect+`"defaultFilterChain":`+chain("default", "")+`,"filterChains":[`+strings.Join(chains, ",")+`]}`)
		for _, name := range []string{"default", "a", "b", "c"} {
			cluster(t, c, name, "10.0.0.1")
		}
		return c
	}
	for _, c := range []struct {
		inspect string
		chains  []string
		r       trace.Request
		want    string
	}{
		{"", []string{chain("a", `"destinationPort":81`)}, trace.Request{}, "default"},
		{"", []string{chain("a", `"destinationPort":80`), chain("b", "")}, trace.Request{}, "a"},
		{"", []string{chain("a", `"prefixRanges":[{"addressPrefix":"10.0.0.0","prefixLen":8}]`),
			chain("b", `"prefixRanges":[{"addressPrefix":"10.1.0.0","prefixLen":16}]`)}, trace.Request{Address: "10.1.2.3"}, "b"},
		{"", []string{chain("a", `"prefixRanges":[{"addressPrefix":"10.0.0.0","prefixLen":8}]`),
			chain("b", `"prefixRanges":[{"addressPrefix":"10.1.0.0","prefixLen":16}]`)}, trace.Request{Address: "10.2.2.3"}, "a"},
		{"", []string{chain("a", `"prefixRanges":[{"addressPrefix":"10.0.0.0","prefixLen":8}]`)}, trace.Request{Address: "11.2.2.3"}, "default"},
		{inspectors, []string{chain("a", `"serverNames":["*.example"]`), chain("b", `"serverNames":["*.b.example"]`),
			chain("c", `"serverNames":["x.b.example"]`)}, trace.Request{TLS: true, SNI: "X.b.example"}, "c"},
		{inspectors, []string{chain("a", `"serverNames":["*.example"]`), chain("b", `"serverNames":["*.b.example"]`)},
			trace.Request{TLS: true, SNI: "y.b.example"}, "b"},
		{inspectors, []string{chain("a", `"serverNames":["*.example"]`)}, trace.Request{TLS: true, SNI: "example"}, "default"},
		{inspectors, []string{chain("a", `"serverNames":["*.example"]`)}, trace.Request{TLS: true}, "default"},
		{"", []string{chain("a", `"serverNames":["x.example"]`), chain("b", "")}, trace.Request{TLS: true, SNI: "x.example"}, "b"},
		{inspectors, []string{chain("a", `"transportProtocol":"tls"`), chain("b", `"transportProtocol":"raw_buffer"`)},
			trace.Request{TLS: true}, "a"},
		{inspectors, []string{chain("a", `"transportProtocol":"tls"`), chain("b", `"transportProtocol":"raw_buffer"`)}, trace.Request{}, "b"},
		{inspectors, []string{chain("a", `"applicationProtocols":["http/1.1","h2c"]`), chain("b", "")}, trace.Request{}, "a"},
		{inspectors, []string{chain("a", `"applicationProtocols":["istio"]`), chain("b", `"applicationProtocols":["h2"]`)},
			trace.Request{TLS: true, ALPN: []string{"h2", "istio"}}, "b"},
		{"", []string{chain("a", `"applicationProtocols":["http/1.1"]`)}, trace.Request{}, "default"},
		{"", []string{chain("a", `"sourcePrefixRanges":[{"addressPrefix":"10.9.0.0","prefixLen":16}]`), chain("b", "")},
			trace.Request{SourceAddress: "10.9.1.1"}, "a"},
		{"", []string{chain("a", `"sourcePrefixRanges":[{"addressPrefix":"10.9.0.0","prefixLen":16}]`), chain("b", "")},
			trace.Request{SourceAddress: "10.8.1.1"}, "b"},
		// the port is looked at first: what matches better otherwise does not count
		{inspectors, []string{chain("a", `"destinationPort":80,"transportProtocol":"tls"`),
			chain("b", `"transportProtocol":"raw_buffer"`)}, trace.Request{}, "default"},
	} {
		a := follow(t, start(c.inspect, c.chains...), c.r)
		if got := step(a, "filter chain").Name; got != c.want || a.Status != 200 {
			t.Errorf("%s, %+v: %s with %d, not %s", c.chains, c.r, got, a.Status, c.want)
		}
	}
}

// TestClientCertificate: a chain that demands a certificate refuses clients that have none. Whether it trusts one of
// another authority is not known.
func TestClientCertificate(t *testing.T) {
	for _, c := range []struct {
		roots, identity string
		certificate     bool
		want, depends   int
	}{
		{"ROOTCA", "spiffe://cluster.local/ns/a/sa/b", false, 200, 0},
		{"ROOTCA", "", false, 0, 0},
		{"ROOTCA", "", true, 200, 1},
		{"file-root:/etc/ca.pem", "", false, 0, 0},
		{"file-root:/etc/ca.pem", "", true, 200, 1},
		{"file-root:/etc/ca.pem", "spiffe://cluster.local/ns/a/sa/b", false, 200, 2},
	} {
		proxy := with(t, trace.Config{}, "virtualInbound", fmt.Sprintf(`{"name":"virtualInbound","filterChains":[{"name":"in",
			"filters":[{"name":"tcp","typedConfig":{"@type":"%snetwork.tcp_proxy.v3.TcpProxy","statPrefix":"x","cluster":"app"}}],
			"transportSocket":{"name":"tls",
			  "typedConfig":{"@type":"type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
			"requireClientCertificate":true,"commonTlsContext":{"combinedValidationContext":{"validationContextSdsSecretConfig":{"name":%q}}}}}}]}`,
			types, c.roots))
		cluster(t, proxy, "app", "10.0.0.1")
		a := follow(t, proxy, trace.Request{Inbound: true, TLS: true, ALPN: []string{"h2"}, Identity: c.identity,
			Certificate: c.certificate})
		if a.Status != c.want || len(a.Depends) != c.depends {
			t.Errorf("%+v: %d, %q: %s", c, a.Status, a.Depends, a.Reason)
		}
	}
}

// TestPolicies: the policies of a filter allow and deny, and say which one did.
func TestPolicies(t *testing.T) {
	rbac := func(action, policy string) string {
		return `"httpFilters":[{"name":"rbac","typedConfig":{"@type":"` + types + `http.rbac.v3.RBAC","rules":{"action":"` + action +
			`","policies":{"ns[a]-policy[p]-rule[1]":` + policy + `}}}}]`
	}
	const anybody = `"principals":[{"any":true}]`
	for _, c := range []struct {
		action, policy string
		r              trace.Request
		status         int
	}{
		{"ALLOW", `{"permissions":[{"any":true}],` + anybody + `}`, trace.Request{}, 200},
		{"DENY", `{"permissions":[{"any":true}],` + anybody + `}`, trace.Request{}, 403},
		{"LOG", `{"permissions":[{"any":true}],` + anybody + `}`, trace.Request{}, 200},
		{"ALLOW", `{"permissions":[{"header":{"name":":method","stringMatch":{"exact":"GET"}}}],` + anybody + `}`,
			trace.Request{Method: "POST"}, 403},
		{"DENY", `{"permissions":[{"header":{"name":":method","stringMatch":{"exact":"GET"}}}],` + anybody + `}`,
			trace.Request{Method: "POST"}, 200},
		{"ALLOW", `{"permissions":[{"urlPath":{"path":{"prefix":"/a"}}}],` + anybody + `}`, trace.Request{Path: "/a?/b"}, 200},
		{"ALLOW", `{"permissions":[{"urlPath":{"path":{"suffix":"/b"}}}],` + anybody + `}`, trace.Request{Path: "/a?/b"}, 403},
		{"ALLOW", `{"permissions":[{"notRule":{"destinationPort":80}}],` + anybody + `}`, trace.Request{}, 403},
		{"ALLOW", `{"permissions":[{"andRules":{"rules":[{"destinationPort":80},{"any":true}]}}],` + anybody + `}`, trace.Request{}, 200},
		{"ALLOW", `{"permissions":[{"orRules":{"rules":[{"destinationPort":81},` +
			`{"destinationIp":{"addressPrefix":"10.0.0.0","prefixLen":8}}]}}],` + anybody + `}`, trace.Request{Address: "10.1.1.1"}, 200},
		{"ALLOW", `{"permissions":[{"any":true}],"principals":[{"authenticated":{"principalName":{"exact":"spiffe://x"}}}]}`,
			trace.Request{Identity: "spiffe://x"}, 200},
		{"ALLOW", `{"permissions":[{"any":true}],"principals":[{"authenticated":{"principalName":{"exact":"spiffe://x"}}}]}`,
			trace.Request{}, 403},
		{"ALLOW", `{"permissions":[{"any":true}],"principals":[{"notId":{"directRemoteIp":{"addressPrefix":"10.0.0.0","prefixLen":8}}}]}`,
			trace.Request{SourceAddress: "10.1.1.1"}, 403},
	} {
		a := follow(t, http(t, rbac(c.action, c.policy), everything), c.r)
		s := step(a, "authorization")
		if a.Status != c.status || s.Reason == "" {
			t.Errorf("%s %s, %+v: %d (%+v), not %d", c.action, c.policy, c.r, a.Status, s, c.status)
		}
		for _, l := range s.Lost {
			if l.Origin.Path != "/apis/security.istio.io/v1/namespaces/a/authorization-policy/p" || l.Origin.Field != "spec.rules[1]" {
				t.Errorf("a policy is of %+v", l.Origin)
			}
		}
	}
}

// TestBinds: of several listeners of one port, the address decides.
func TestBinds(t *testing.T) {
	c := trace.Config{}
	for _, bind := range []string{"10.0.0.1", "10.0.0.2"} {
		with(t, c, bind+"_80", fmt.Sprintf(`{"name":"%s_80","address":{"socketAddress":{"address":"%s","portValue":80}},"filterChains":[{}]}`,
			bind, bind))
	}
	for address, want := range map[string]string{"10.0.0.1": "10.0.0.1_80", "10.0.0.2": "10.0.0.2_80", "10.0.0.3": ""} {
		a := follow(t, c, trace.Request{Gateway: true, Address: address, Port: 80})
		if got := step(a, "listener").Name; got != want || want == "" && !strings.Contains(a.Reason, "10.0.0.1, 10.0.0.2") {
			t.Errorf("%s: %q, not %q: %s", address, got, want, a.Reason)
		}
	}
}

// TestPriorities: only endpoints of the priorities to which Envoy sends requests are used.
func TestPriorities(t *testing.T) {
	at := func(priority uint32, health string) trace.Endpoint {
		return trace.Endpoint{Priority: priority, Health: health}
	}
	for _, c := range []struct {
		endpoints []trace.Endpoint
		want      int
	}{
		{[]trace.Endpoint{at(0, ""), at(1, "")}, 1},
		{[]trace.Endpoint{at(0, ""), at(0, ""), at(0, ""), at(0, "unhealthy"), at(1, "")}, 3},
		{[]trace.Endpoint{at(0, ""), at(0, "unhealthy"), at(1, ""), at(1, "")}, 3},
		{[]trace.Endpoint{at(0, "unhealthy"), at(1, "")}, 1},
		{[]trace.Endpoint{at(0, "draining")}, 0},
	} {
		if got := (&trace.Target{Endpoints: c.endpoints}).Used(); len(got) != c.want {
			t.Errorf("%v: %v", c.endpoints, got)
		}
	}
}

// TestNothing: what no listener, chain or route configuration is there for is said so.
func TestNothing(t *testing.T) {
	if a := follow(t, trace.Config{}, trace.Request{}); a.Status != 0 || a.Reason == "" {
		t.Errorf("%+v", a)
	}
	rds := with(t, trace.Config{}, "0.0.0.0_80", fmt.Sprintf(
		`{"name":"0.0.0.0_80","address":{"socketAddress":{"address":"0.0.0.0","portValue":80}},"filterChains":[{"filters":[
		{"name":"hcm","typedConfig":{"@type":"%snetwork.http_connection_manager.v3.HttpConnectionManager",
		  "rds":{"routeConfigName":"80"}}}]}]}`, types))
	if a := follow(t, rds, trace.Request{}); a.Status != 404 || !strings.Contains(a.Reason, "80") {
		t.Errorf("%+v", a)
	}
	if a := follow(t, rds, trace.Request{Port: 81}); a.Status != 0 || a.Reason == "" {
		t.Errorf("%+v", a)
	}
	if a := follow(t, rds, trace.Request{Port: 81, Gateway: true}); a.Status != 0 || a.Reason == "" {
		t.Errorf("%+v", a)
	}
}
