package extension_test

import (
	"os"
	"strconv"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	luav3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/lua/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/istiod-lite/istiod-lite/deploy/histories"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/envoy/envoytest"
)

// TestEnvoysTakeScripts: a real Envoy takes the listeners with the scripts that validation accepts, and its LuaJIT
// loads no others.
func TestEnvoysTakeScripts(t *testing.T) {
	histories.NoRace(t)
	t.Parallel()
	text, err := os.ReadFile("../../../galley/validation/lua/testdata/scripts.txt")
	must.Succeed(t, err)
	all, bad := &envoytest.Resources{}, []string(nil)
	for i, part := range strings.Split(string(text), "-- script ") {
		verdict, script, ok := strings.Cut(part, "\n")
		if !ok {
			continue
		}
		name := "script " + strconv.Itoa(i)
		if verdict != "loads" {
			bad = append(bad, script)
			continue
		}
		all.Add(t, name, envoy.ListenerType, envoy.NewResource(name, scripted(name, script, uint32(10000+i)))) //nolint:gosec // a few
	}
	for _, r := range all.Refused(t) {
		t.Errorf("an Envoy refuses %s: %s", r.From, r.Reason)
	}
	for i, why := range loadAll(t, envoytest.Program(t), bad) {
		if why == "" {
			t.Errorf("LuaJIT loads a script that validation refuses:\n%s", bad[i])
		}
	}
	if all.Len() < 30 || len(bad) < 20 {
		t.Errorf("%d scripts load, and %d do not", all.Len(), len(bad))
	}
}

// scripted returns a listener with a script among its filters.
func scripted(name, script string, port uint32) *listenerv3.Listener {
	return &listenerv3.Listener{
		Name: name,
		Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{Address: "127.0.0.1",
			PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port}}}},
		FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{envoy.NetworkFilter(
			"envoy.filters.network.http_connection_manager", envoy.Any(&hcmv3.HttpConnectionManager{
				StatPrefix:     "x",
				RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: &routev3.RouteConfiguration{Name: "x"}},
				HttpFilters: []*hcmv3.HttpFilter{
					envoy.HTTPFilter("lua",
						envoy.Any(&luav3.Lua{DefaultSourceCode: &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: script}}})),
					envoy.HTTPFilter("envoy.filters.http.router", envoy.Any(&routerv3.Router{})),
				},
			}))}}},
	}
}
