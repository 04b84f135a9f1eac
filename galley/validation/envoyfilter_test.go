package validation

import (
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// TestTextsOfPatches: the Lua of an EnvoyFilter and its texts with commands are checked wherever Envoy's API holds
// them, and no other text is taken for one.
func TestTextsOfPatches(t *testing.T) {
	const (
		lua    = "'@type': type.googleapis.com/envoy.extensions.filters.http.lua.v3."
		filter = "{name: a, typed_config: {" + lua + "Lua, "
		value  = "spec.configPatches[0].patch.value."
		config = value + "typed_config."
		wasm   = "envoy.extensions.filters.http.wasm.v3.Wasm, config: {configuration: {'@type': type.googleapis.com/google.protobuf."
		typed  = "{name: a, typed_config: {'@type': type.googleapis.com/"
		route  = "{typed_per_filter_config: {a: {"
		log    = "{access_log: [{name: a, typed_config: {'@type': type.googleapis.com/envoy.extensions.access_loggers."
		first  = value + "access_log[0].typed_config."
		hcm    = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager, http_filters: ["
	)
	for _, c := range []struct{ applyTo, value, field string }{
		{"HTTP_FILTER", filter + "inline_code: 'x = 1'}}", ""},
		{"HTTP_FILTER", filter + "inline_code: 'x = '}}", config + "inline_code"},
		{"HTTP_FILTER", filter + "inlineCode: 'x = '}}", config + "inlineCode"},
		{"HTTP_FILTER", filter + "default_source_code: {inline_string: 'x = '}}}", config + "default_source_code.inline_string"},
		{"HTTP_FILTER", filter + "default_source_code: {inline_bytes: eCA9IDE=}}}", ""},
		{"HTTP_FILTER", filter + "default_source_code: {inline_bytes: eCA9IA==}}}", config + "default_source_code.inline_bytes"},
		{"HTTP_FILTER", filter + "source_codes: {a: {inline_string: x = 1}, b: {inline_string: 'x = '}}}}",
			config + "source_codes.b.inline_string"},
		{"HTTP_FILTER", filter + "inline_code: 'local " + strings.Repeat("a,", 200) + "a'}}", config + "inline_code"},
		{"EXTENSION_CONFIG", filter + "inline_code: 'x = '}}", config + "inline_code"},
		{"HTTP_FILTER", typed + "xds.type.v3.TypedStruct, type_url: a" + lua[8:] + "Lua, value: {inline_code: 'x = '}}}",
			config + "value.inline_code"},
		{"HTTP_FILTER", typed + "udpa.type.v1.TypedStruct, type_url: a" + lua[8:] + "Lua, value: {inline_code: 'x = 1'}}}", ""},
		{"HTTP_ROUTE", route + lua + "LuaPerRoute, source_code: {inline_string: 'x = '}}}}",
			value + "typed_per_filter_config.a.source_code.inline_string"},
		{
			"VIRTUAL_HOST", route + "'@type': type.googleapis.com/envoy.config.route.v3.FilterConfig, config: {" +
				lua + "LuaPerRoute, source_code: {inline_string: 'x = '}}}}}",
			value + "typed_per_filter_config.a.config.source_code.inline_string",
		},
		{"NETWORK_FILTER", typed + hcm + filter + "inline_code: 'x = '}}]}}", config + "http_filters[0].typed_config.inline_code"},
		{"HTTP_FILTER", typed + "envoy.extensions.filters.http.buffer.v3.Buffer, inline_code: 'x = '}}", ""},
		{"LISTENER", log + "file.v3.FileAccessLog, path: /x, log_format: {text_format_source: {inline_string: '%REQ(a)% 100%%'}}}}]}", ""},
		{"LISTENER", log + "file.v3.FileAccessLog, path: /x, log_format: {text_format_source: {inline_string: '%NOPE%'}}}}]}",
			first + "log_format.text_format_source.inline_string"},
		{"LISTENER", log + "file.v3.FileAccessLog, path: /x, log_format: {text_format: '100%'}}}]}", first + "log_format.text_format"},
		{"LISTENER", log + "stream.v3.StdoutAccessLog, log_format: {json_format: {a: {b: '%NOPE%'}}}}}]}", first + "log_format.json_format.a.b"},
		{"LISTENER", log + "stream.v3.StdoutAccessLog, log_format: {text_format: '%OWN%', formatters: [{name: own}]}}}]}", ""},
		{"LISTENER", log + "open_telemetry.v3.OpenTelemetryAccessLogConfig, body: {string_value: '%NOPE%'}}}]}", first + "body.string_value"},
		{"LISTENER", log + "open_telemetry.v3.OpenTelemetryAccessLogConfig, " +
			"attributes: {values: [{key: a, value: {string_value: '%NOPE%'}}]}}}]}", first + "attributes.values[0].value.string_value"},
		{"VIRTUAL_HOST", "{request_headers_to_add: [{header: {key: a, value: '50%'}}]}", value + "request_headers_to_add[0].header.value"},
		{"VIRTUAL_HOST", "{response_headers_to_add: [{header: {key: a, value: '%START_TIME%'}}]}", ""},
		{"HTTP_ROUTE", "{direct_response: {status: 200, body: {inline_string: '50%'}}}", ""},
		{"HTTP_FILTER", typed + "google.protobuf.Struct, value: {text_format: '100%'}}}", ""},
		{"HTTP_FILTER", typed + "google.protobuf.Struct, value: [a]}}", config + "value"},
		{"HTTP_FILTER", typed + wasm + "StringValue, value: '{\"a\": 1}'}}}}", ""},
		{"HTTP_FILTER", typed + wasm + "StringValue, value: 1}}}}", config + "config.configuration.value"},
		{"HTTP_FILTER", typed + wasm + "StringValue}}}}", config + "config.configuration.value"},
		{"HTTP_FILTER", typed + wasm + "Struct, value: {a: [1, {b: c}]}}}}}", ""},
		{"HTTP_FILTER", typed + wasm + "BytesValue, value: AAAA}}}}", ""},
		{"HTTP_FILTER", typed + wasm + "Duration, value: 1.5s}}}}", ""},
		{"HTTP_FILTER", typed + wasm + "Any, value: {'@type': type.googleapis.com/google.protobuf.StringValue, value: a}}}}}", ""},
		{"VIRTUAL_HOST", "{metadata: {filter_metadata: {a: {json_format: '100%'}}}}", ""},
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
			t.Errorf("%s\nhas faults in [%s], not in [%s]: %v", spec, got, c.field,
				decode(document(kinds.EnvoyFilter, "spec:\n  "+spec+"\n")).Findings())
		}
	}
}
