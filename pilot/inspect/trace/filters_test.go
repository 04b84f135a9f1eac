package trace_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/lua/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/proxy_protocol/v3"

	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/inspect/trace"
)

// added are objects of which EnvoyFilter a/b adds all filters.
type added struct{}

func (added) NameOf(o trace.Origin) string {
	if o.Filter != "" {
		return "EnvoyFilter a/b"
	}
	return ""
}

// TestUnknownFilters checks that an answer depends on each filter that is not evaluated, and on no other.
func TestUnknownFilters(t *testing.T) {
	const structOf = `{"name":"wrapped","typedConfig":{"@type":"type.googleapis.com/udpa.type.v1.TypedStruct",` +
		`"typeUrl":"type.googleapis.com/%s","value":%s}}`
	const policy = `{"rules":{"action":"DENY","policies":{"p":{"permissions":[{"any":true}],"principals":[{"any":true}]}}}}`
	for _, c := range []struct {
		filter, want string
		status       int
	}{
		{filters("router.v3.Router"), "", 200},
		{filters("lua.v3.Lua"), "HTTP filter envoy.filters.http.lua of EnvoyFilter a/b is not evaluated, and may answer itself", 200},
		{`"httpFilters":[` + fmt.Sprintf(structOf, "stats.PluginConfig", "{}") + `]`, "", 200},
		{`"httpFilters":[` + fmt.Sprintf(structOf, "some.Config", "{}") + `]`,
			"HTTP filter wrapped of EnvoyFilter a/b is not evaluated, and may answer itself", 200},
		{`"httpFilters":[` + fmt.Sprintf(structOf, "envoy.extensions.filters.http.rbac.v3.RBAC", policy) + `]`, "", 403},
		{`"httpFilters":[{"name":"late","configDiscovery":{"configSource":{"ads":{}},"typeUrls":["x"]}}]`,
			"HTTP filter late of EnvoyFilter a/b is not evaluated, and may answer itself", 200},
		{strings.Replace(filters("lua.v3.Lua"), `{"name"`, `{"disabled":true,"name"`, 1), "", 200},
	} {
		a := follow(t, http(t, c.filter, everything), trace.Request{Objects: added{}})
		if got := strings.Join(lists.Map(a.Depends, trace.Dependency.String), "; "); got != c.want || a.Status != c.status {
			t.Errorf("%s: %q with %d, not %q with %d", c.filter, got, a.Status, c.want, c.status)
		}
	}
	tcp := func(filter string) trace.Config {
		c := with(t, trace.Config{}, "l", fmt.Sprintf(
			`{"name":"l","address":{"socketAddress":{"address":"0.0.0.0","portValue":80}},"filterChains":[{"filters":[%s,
			{"name":"tcp","typedConfig":{"@type":"%snetwork.tcp_proxy.v3.TcpProxy","statPrefix":"x","cluster":"one"}}]}]}`, filter, types))
		cluster(t, c, "one", "10.0.0.1")
		return c
	}
	a := follow(t, tcp(fmt.Sprintf(structOf, "some.Config", "{}")), trace.Request{})
	if want := []string{"network filter wrapped is not evaluated, and may close the connection or answer itself"}; a.Status != 200 ||
		!slices.Equal(lists.Map(a.Depends, trace.Dependency.String), want) {
		t.Errorf("%d, %q", a.Status, a.Depends)
	}
	a = follow(t, tcp(fmt.Sprintf(structOf, "envoy.tcp.metadataexchange.config.MetadataExchange", "{}")), trace.Request{})
	if a.Depends != nil {
		t.Errorf("%q", a.Depends)
	}
}

// TestCORS checks that preflights are answered as Envoy 1.40 answers them, which was tried.
func TestCORS(t *testing.T) {
	const policy = `{"@type":"` + types + `http.cors.v3.CorsPolicy",`
	const some = `"allowOriginStringMatch":[{"exact":"https://a"}]`
	for _, c := range []struct {
		hosts, routes, action string
		origin, asks          string
		want                  bool // whether the proxy answers
	}{
		{"", some, "", "https://a", "GET", true},
		{"", some, "", "https://b", "GET", false},
		{"", some + `,"forwardNotMatchingPreflights":false`, "", "https://b", "GET", true},
		{"", some, "", "https://a", "", false},
		{"", some, "", "", "GET", false},
		{"", `"allowOriginStringMatch":[{"exact":"*"}]`, "", "https://b", "GET", true},
		{"", `"maxAge":"1"`, "", "https://a", "GET", false},
		{"", some + `,"filterEnabled":{"defaultValue":{"numerator":0}}`, "", "https://a", "GET", false},
		{some + `,"forwardNotMatchingPreflights":false`, `"maxAge":"1"`, "", "https://b", "GET", true},
		{"", some, `"redirect":{}`, "https://a", "GET", false},
	} {
		config := func(p string) string {
			if p == "" {
				return ""
			}
			return `"typedPerFilterConfig":{"envoy.filters.http.cors":` + policy + p + `}},`
		}
		action := c.action
		if action == "" {
			action = `"route":{"cluster":"one"}`
		}
		x := http(t, filters("cors.v3.Cors"), `[{"name":"all","domains":["*"],`+config(c.hosts)+`"routes":[{"match":{"prefix":"/"},`+
			config(c.routes)+action+`}]}]`)
		cluster(t, x, "one", "10.0.0.1")
		r := trace.Request{Method: "OPTIONS", Headers: map[string]string{}}
		for name, v := range map[string]string{"origin": c.origin, "access-control-request-method": c.asks} {
			if v != "" {
				r.Headers[name] = v
			}
		}
		if a := follow(t, x, r); (a.Answered && a.Status == 200) != c.want {
			t.Errorf("%+v: %d %s", c, a.Status, a.Reason)
		}
	}
}

// TestFaults checks the conditions of faults, and that the cluster which is chosen may have settings of its own.
func TestFaults(t *testing.T) {
	fault := func(more string) string {
		return `"typedPerFilterConfig":{"envoy.filters.http.fault":{"@type":"` + types + `http.fault.v3.HTTPFault","abort":{"httpStatus":418,` +
			`"percentage":{"numerator":100}}` + more + `}}`
	}
	const one = `"route":{"cluster":"one"}`
	const both = `"route":{"weightedClusters":{"clusters":[{"name":"one","weight":1,%s},{"name":"two","weight":1}]}}`
	maybe := func(on string) string {
		return "the fault of EnvoyFilter a/b answers 100 % of requests with status 418: whether it applies depends on " + on
	}
	for _, c := range []struct {
		route, header string
		status        int
		want          string
	}{
		{one + "," + fault(""), "", 418, ""},
		{one + "," + fault(`,"headers":[{"name":"x","stringMatch":{"exact":"1"}}]`), "", 200, ""},
		{one + "," + fault(`,"headers":[{"name":"x","stringMatch":{"exact":"1"}}]`), "1", 418, ""},
		{one + "," + fault(`,"downstreamNodes":["1"]`), "1", 200, ""},
		{one + "," + fault(`,"upstreamCluster":"one"`), "", 418, ""},
		{one + "," + fault(`,"upstreamCluster":"two"`), "", 200, ""},
		{fmt.Sprintf(both, `"requestHeadersToRemove":["y"]`) + "," + fault(`,"upstreamCluster":"two"`), "", 200,
			maybe("the cluster that is chosen for the request")},
		{strings.Replace(fmt.Sprintf(both, fault("")), `,{"name":"two","weight":1}`, "", 1), "", 418, ""},
		{strings.Replace(fmt.Sprintf(both, fault("")), `"two","weight":1`, `"two","weight":0`, 1), "", 418, ""},
		{fmt.Sprintf(both, fault("")), "", 200,
			"HTTP filter envoy.filters.http.fault of EnvoyFilter a/b has settings of its own for some clusters of the route, and which one is " +
				"chosen is not known"},
	} {
		x := http(t, filters("fault.v3.HTTPFault"), `[{"name":"all","domains":["*"],"routes":[{"match":{"prefix":"/"},`+c.route+`}]}]`)
		cluster(t, x, "one", "10.0.0.1")
		cluster(t, x, "two", "10.0.0.1")
		r := trace.Request{Objects: added{}, Headers: map[string]string{}}
		if c.header != "" {
			r.Headers["x"] = c.header
		}
		a := follow(t, x, r)
		if got := strings.Join(lists.Map(a.Depends, trace.Dependency.String), "; "); got != c.want || a.Status != c.status {
			t.Errorf("%+v: %q with %d", c, got, a.Status)
		}
	}
}

// TestSessions checks that a request may name any endpoint that its cookie may stand for.
func TestSessions(t *testing.T) {
	const session = `{"name":"s","typedConfig":{"@type":"` + types + `http.stateful_session.v3.StatefulSession","sessionState":{"name":"c",` +
		`"typedConfig":{"@type":"type.googleapis.com/envoy.extensions.http.stateful_session.cookie.v3.CookieBasedSessionState",` +
		`"cookie":{"name":"to"}}}}}`
	x := http(t, `"httpFilters":[`+session+`]`,
		`[{"name":"all","domains":["*"],"routes":[{"match":{"prefix":"/"},"route":{"cluster":"one"}}]}]`)
	x[envoy.ClusterType] = append(x[envoy.ClusterType], resource(t, "one", &clusterv3.Cluster{},
		`{"name":"one","type":"EDS","commonLbConfig":{"overrideHostStatus":{"statuses":["UNKNOWN","DRAINING"]}}}`))
	x[envoy.EndpointType] = append(x[envoy.EndpointType], resource(t, "one", &endpointv3.ClusterLoadAssignment{}, `{"clusterName":"one",
		"endpoints":[{"lbEndpoints":[{"endpoint":{"address":{"socketAddress":{"address":"10.0.0.1","portValue":80}}}},
		{"healthStatus":"DRAINING","endpoint":{"address":{"socketAddress":{"address":"10.0.0.2","portValue":80}}}}]}]}`))
	for cookie, want := range map[string]int{"": 1, "too=1": 1, "a=b; to=x": 2} {
		a := follow(t, x, trace.Request{Headers: map[string]string{"cookie": cookie}})
		if got := len(a.Targets[0].Used()); got != want || a.Depends != nil {
			t.Errorf("%q: %d endpoints, %q", cookie, got, a.Depends)
		}
	}
}

// TestLimits checks that limits make the answer depend on them if they are enforced.
func TestLimits(t *testing.T) {
	const bucket = `"tokenBucket":{"maxTokens":1,"fillInterval":"1s"}`
	const enabled = `,"filterEnabled":{"defaultValue":{"numerator":100}}`
	const enforced = `,"filterEnforced":{"defaultValue":{"numerator":100}}`
	for _, c := range []struct{ filter, host, want string }{
		{"local_ratelimit.v3.LocalRateLimit", "", ""},
		{"local_ratelimit.v3.LocalRateLimit|" + bucket + enabled, "", ""},
		{"local_ratelimit.v3.LocalRateLimit|" + bucket + enabled + enforced, "",
			"the local rate limit of EnvoyFilter a/b may answer 429"},
		{"local_ratelimit.v3.LocalRateLimit|" + bucket + enabled + enforced + `,"status":{"code":503}`, "",
			"the local rate limit of EnvoyFilter a/b may answer 503"},
		{"ratelimit.v3.RateLimit", "", ""},
		{"ratelimit.v3.RateLimit", `"rateLimits":[{"actions":[{"remoteAddress":{}}]}],`, "the rate limit of EnvoyFilter a/b may answer 429"},
		{"ratelimit.v3.RateLimit", `"rateLimits":[{"stage":1,"actions":[{"remoteAddress":{}}]}],`, ""},
	} {
		name, fields, more := strings.Cut(c.filter, "|")
		f := filters(name)
		if more {
			f = strings.Replace(f, `"}}`, `",`+fields+`}}`, 1)
		}
		x := http(t, f, `[{"name":"all","domains":["*"],`+c.host+`"routes":[{"match":{"prefix":"/"},"route":{"cluster":"one"}}]}]`)
		cluster(t, x, "one", "10.0.0.1")
		a := follow(t, x, trace.Request{Objects: added{}})
		if got := strings.Join(lists.Map(a.Depends, trace.Dependency.String), "; "); got != c.want || a.Status != 200 {
			t.Errorf("%+v: %q with %d", c, got, a.Status)
		}
	}
}

// TestAddresses checks which address and which port policies see, as Envoy 1.40 sees them, which was tried.
func TestAddresses(t *testing.T) {
	const from = `{"permissions":[{"any":true}],"principals":[{"%s":{"addressPrefix":"1.2.3.0","prefixLen":24}}]}`
	const to = `{"permissions":[{"destinationPort":%d}],"principals":[{"any":true}]}`
	remote, direct := fmt.Sprintf(from, "remoteIp"), fmt.Sprintf(from, "directRemoteIp")
	const proxyProtocol = `"listenerFilters":[{"name":"p","typedConfig":{"@type":"type.googleapis.com/` +
		`envoy.extensions.filters.listener.proxy_protocol.v3.ProxyProtocol"}}],`
	const unknown = "it depends"
	const edge, hop, hops = `"useRemoteAddress":true`, `"xffNumTrustedHops":1`, `"xffNumTrustedHops":2`
	for _, c := range []struct {
		policy, manager, listener, xff, client string
		want                                   string
	}{
		{remote, edge, "", "", "1.2.3.4", "allowed"},
		{remote, edge, "", "1.2.3.4", "9.9.9.9", "denied"},
		{remote, edge, "", "", "", unknown},
		{remote, edge + "," + hop, "", "9.9.9.9, 1.2.3.4", "8.8.8.8", "allowed"},
		{remote, edge + "," + hop, "", "1.2.3.4, 9.9.9.9", "8.8.8.8", "denied"},
		{remote, edge + "," + hop, "", "junk", "8.8.8.8", "denied"},
		{remote, edge + "," + hops, "", "1.2.3.4, 9.9.9.9", "8.8.8.8", "allowed"},
		{remote, `"useRemoteAddress":false`, "", "9.9.9.9, 1.2.3.4", "8.8.8.8", "allowed"},
		{remote, `"useRemoteAddress":false`, "", "1.2.3.4, 9.9.9.9", "8.8.8.8", "denied"},
		{remote, `"useRemoteAddress":false`, "", "1.2.3.4:80", "8.8.8.8", "denied"},
		{remote, hop, "", "1.2.3.4, 9.9.9.9", "8.8.8.8", "allowed"},
		{direct, edge, "", "8.8.8.8", "1.2.3.4", "allowed"},
		{direct, edge, "", "", "", unknown},
		{direct, edge, proxyProtocol, "", "1.2.3.4", unknown},
		{remote, edge, proxyProtocol, "", "1.2.3.4", "allowed"},
		{fmt.Sprintf(to, 8080), edge, "", "", "", "allowed"},
		{fmt.Sprintf(to, 80), edge, "", "", "", "denied"},
		{fmt.Sprintf(to, 80), edge, proxyProtocol, "", "", unknown},
	} {
		rules := strings.Replace(filters("rbac.v3.RBAC"), `"}}`, `","rules":{"action":"ALLOW","policies":{"ns[a]-policy[p]-rule[0]":`+
			c.policy+`}}}}`, 1)
		x := with(t, trace.Config{}, "l", fmt.Sprintf(
			`{"name":"l","address":{"socketAddress":{"address":"0.0.0.0","portValue":8080}},%s"filterChains":[{"filters":[
			{"name":"hcm","typedConfig":{"@type":"%snetwork.http_connection_manager.v3.HttpConnectionManager",%s,%s,
			"routeConfig":{"name":"http.80","virtualHosts":%s}}}]}]}`, c.listener, types, c.manager, rules, everything))
		r := trace.Request{Gateway: true, Port: 8080, SourceAddress: c.client, PROXY: c.listener != "", Headers: map[string]string{}}
		if c.xff != "" {
			r.Headers["x-forwarded-for"] = c.xff
		}
		a := follow(t, x, r)
		got := "allowed"
		if a.Status == 403 {
			got = "denied"
		} else if len(a.Depends) > 0 {
			got = unknown
			if !strings.HasPrefix(a.Depends[0].Text, "AuthorizationPolicy a/p may not allow it: that depends on the ") {
				t.Errorf("%q", a.Depends)
			}
		}
		if got != c.want {
			t.Errorf("%+v: %s (%d %s, %q)", c, got, a.Status, a.Reason, a.Depends)
		}
	}
}
