package durations

import (
	"testing"

	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3" // a type that messages name
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
)

func TestSeconds(t *testing.T) {
	for text, want := range map[string]string{
		"24h": "86400s", "1h30m": "5400s", "1.5s": "1.500s", "250ms": "0.250s", "-90s": "-90s", "1us": "0.000001s", "0": "0s", "5s": "5s",
		"": "", "5": "5", "a day": "a day", "1d": "1d",
	} {
		if got := Seconds(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestRewrite: durations are rewritten in messages, lists, maps and messages of type Any, by both names of a field.
// Text of other types stays.
func TestRewrite(t *testing.T) {
	s := &structpb.Struct{}
	if err := protojson.Unmarshal([]byte(`{
		"stat_prefix": "1h", "drainTimeout": "1m", "common_http_protocol_options": {"idle_timeout": "24h"}, "request_timeout": 5,
		"http_filters": [{"name": "2h",
		  "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault", "delay": {"fixed_delay": "1h30m"}}},
			{"typed_config": {"@type": "type.googleapis.com/xds.type.v3.TypedStruct", "value": {"timeout": "3h"}}},
			{"typed_config": {"@type": "type.googleapis.com/unknown.Type", "timeout": "3h"}},
			{"typed_config": {"@type": "type.googleapis.com/google.protobuf.Duration", "value": "1m"}}],
		"route_config": {"virtual_hosts": [{"routes": [{"route": {"timeout": "1m30s"},
		  "typed_per_filter_config": {"x": {"@type": "type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault",
		    "delay": {"fixed_delay": "1m"}}}}]}]}
	}`), s); err != nil {
		t.Fatal(err)
	}
	Rewrite((&hcmv3.HttpConnectionManager{}).ProtoReflect().Descriptor(), s)
	want := &structpb.Struct{}
	if err := protojson.Unmarshal([]byte(`{
		"stat_prefix": "1h", "drainTimeout": "60s", "common_http_protocol_options": {"idle_timeout": "86400s"}, "request_timeout": 5,
		"http_filters": [{"name": "2h",
		  "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault", "delay": {"fixed_delay": "5400s"}}},
			{"typed_config": {"@type": "type.googleapis.com/xds.type.v3.TypedStruct", "value": {"timeout": "3h"}}},
			{"typed_config": {"@type": "type.googleapis.com/unknown.Type", "timeout": "3h"}},
			{"typed_config": {"@type": "type.googleapis.com/google.protobuf.Duration", "value": "60s"}}],
		"route_config": {"virtual_hosts": [{"routes": [{"route": {"timeout": "90s"},
		  "typed_per_filter_config": {"x": {"@type": "type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault",
		    "delay": {"fixed_delay": "60s"}}}}]}]}
	}`), want); err != nil {
		t.Fatal(err)
	}
	if got, w := protojson.Format(s), protojson.Format(want); got != w {
		t.Errorf("got %s\nwant %s", got, w)
	}
}
