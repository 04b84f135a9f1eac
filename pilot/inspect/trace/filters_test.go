package trace_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/lua/v3"

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
		if got := strings.Join(a.Depends, "; "); got != c.want || a.Status != c.status {
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
		!slices.Equal(a.Depends, want) {
		t.Errorf("%d, %q", a.Status, a.Depends)
	}
	a = follow(t, tcp(fmt.Sprintf(structOf, "envoy.tcp.metadataexchange.config.MetadataExchange", "{}")), trace.Request{})
	if a.Depends != nil {
		t.Errorf("%q", a.Depends)
	}
}
