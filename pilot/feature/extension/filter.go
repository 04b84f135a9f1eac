package extension

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	luav3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/lua/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// Types of the configuration of a filter. If a module cannot be fetched and requests are to be denied, an agent
// replaces its filter by one that denies them.
const (
	httpWasm    = "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm"
	httpRBAC    = "type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBAC"
	networkWasm = "type.googleapis.com/envoy.extensions.filters.network.wasm.v3.Wasm"
	networkRBAC = "type.googleapis.com/envoy.extensions.filters.network.rbac.v3.RBAC"
)

func httpFilters(c feature.Chain) []*hcmv3.HttpFilter {
	var list []*hcmv3.HttpFilter
	for o := range c.Selection.Objects.All {
		p := read(o)
		if p.network() || !p.handles(c) {
			continue
		}
		f := envoy.HTTPFilter(filterName(o), nil)
		if p.wasm == nil {
			f = envoy.HTTPFilter(f.Name, envoy.Any(&luav3.Lua{DefaultSourceCode: inline(p.lua)}))
		} else {
			f.ConfigType = &hcmv3.HttpFilter_ConfigDiscovery{ConfigDiscovery: discovery(httpWasm, httpRBAC)}
		}
		list = append(list, f)
	}
	return list
}

func networkFilters(c feature.Chain) []*listenerv3.Filter {
	var list []*listenerv3.Filter
	for o := range c.Selection.Objects.All {
		if p := read(o); p.network() && p.handles(c) {
			list = append(list, &listenerv3.Filter{Name: filterName(o),
				ConfigType: &listenerv3.Filter_ConfigDiscovery{ConfigDiscovery: discovery(networkWasm, networkRBAC)}})
		}
	}
	return list
}

// discovery makes proxies subscribe to a configuration of one of some types.
func discovery(types ...string) *corev3.ExtensionConfigSource {
	return &corev3.ExtensionConfigSource{ConfigSource: envoy.ADS(), TypeUrls: types}
}

func inline(code string) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: code}}
}
