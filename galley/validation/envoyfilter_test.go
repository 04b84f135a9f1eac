package validation

import (
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// TestScriptsOfPatches: the Lua of an EnvoyFilter is judged wherever Envoy's API holds it, and nothing else is taken
// for Lua.
func TestScriptsOfPatches(t *testing.T) {
	const (
		lua    = "'@type': type.googleapis.com/envoy.extensions.filters.http.lua.v3."
		filter = "{name: a, typed_config: {" + lua + "Lua, "
		value  = "spec.configPatches[0].patch.value."
		config = value + "typed_config."
		typed  = "{name: a, typed_config: {'@type': type.googleapis.com/"
		route  = "{typed_per_filter_config: {a: {"
		hcm    = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager, http_filters: ["
	)
	for _, c := range []struct{ applyTo, value, field string }{
		{"HTTP_FILTER", filter + "inline_code: 'x = 1'}}", ""},
		{"HTTP_FILTER", filter + "inline_code: 'x = '}}", config + "inline_code"},
		{"HTTP_FILTER", filter + "inlineCode: 'x = '}}", config + "inlineCode"},
		{"HTTP_FILTER", filter + "default_source_code: {inline_string: 'x = '}}}", config + "default_source_code.inline_string"},
		{"HTTP_FILTER", filter + "default_source_code: {inline_bytes: eCA9IDE=}}}", ""},
		{"HTTP_FILTER", filter + "default_source_code: {inline_bytes: eCA9IA==}}}", config + "default_source_code.inline_bytes"},
		{"HTTP_FILTER", filter + "source_codes: {a: {inline_string: x = 1}, b: {inline_string: 'x = '}}}}", config + "source_codes.b.inline_string"},
		{"HTTP_FILTER", filter + "inline_code: 'local " + strings.Repeat("a,", 200) + "a'}}", config + "inline_code"},
		{"EXTENSION_CONFIG", filter + "inline_code: 'x = '}}", config + "inline_code"},
		{"HTTP_FILTER", typed + "xds.type.v3.TypedStruct, type_url: a" + lua[8:] + "Lua, value: {inline_code: 'x = '}}}", config + "value.inline_code"},
		{"HTTP_FILTER", typed + "udpa.type.v1.TypedStruct, type_url: a" + lua[8:] + "Lua, value: {inline_code: 'x = 1'}}}", ""},
		{"HTTP_ROUTE", route + lua + "LuaPerRoute, source_code: {inline_string: 'x = '}}}}", value + "typed_per_filter_config.a.source_code.inline_string"},
		{
			"VIRTUAL_HOST", route + "'@type': type.googleapis.com/envoy.config.route.v3.FilterConfig, config: {" + lua + "LuaPerRoute, source_code: {inline_string: 'x = '}}}}}",
			value + "typed_per_filter_config.a.config.source_code.inline_string",
		},
		{"NETWORK_FILTER", typed + hcm + filter + "inline_code: 'x = '}}]}}", config + "http_filters[0].typed_config.inline_code"},
		{"HTTP_FILTER", typed + "envoy.extensions.filters.http.buffer.v3.Buffer, inline_code: 'x = '}}", ""},
	} {
		operation := "MERGE"
		if c.applyTo == "EXTENSION_CONFIG" {
			operation = "ADD"
		}
		spec := "{configPatches: [{applyTo: " + c.applyTo + ", patch: {operation: " + operation + ", value: " + c.value + "}}]}"
		var fields []string
		for _, d := range decode(document(kinds.EnvoyFilter, "spec:\n  "+spec+"\n")).Findings() {
			fields = append(fields, d.Field)
		}
		if got := strings.Join(fields, " "); got != c.field {
			t.Errorf("%s\nhas faults in [%s], not in [%s]: %v", spec, got, c.field, decode(document(kinds.EnvoyFilter, "spec:\n  "+spec+"\n")).Findings())
		}
	}
}
