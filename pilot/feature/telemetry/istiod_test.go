package telemetry_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/inspect/inspecttest"
)

// TestIstiod compares the access logs, the tracing and the metrics of every listener with what the real istiod sent.
func TestIstiod(t *testing.T) { inspecttest.Compare(t, 10, typesWithStats(t), observed) }

// observed returns what a proxy observes: each value, and the places that have it.
func observed(listeners, _ map[string]any) string {
	places := inspecttest.Places{}
	add := func(kind string, v any, at string) { places.Add(kind+" "+inspecttest.Line(v), at) }
	var visit func(v any, at string)
	visit = func(v any, at string) {
		switch v := v.(type) {
		case map[string]any:
			name, _ := v["name"].(string)
			switch {
			case name == "istio.stats":
				add("stats", v["typedConfig"], at)
				return
			case name == "envoy.filters.network.tcp_proxy":
				at += "/tcp"
			case name == "envoy.filters.network.http_connection_manager":
				at += "/http"
			case name != "" && !strings.HasPrefix(name, "envoy."):
				at += "/" + name
			}
			for k, child := range v {
				switch k {
				case "accessLog", "tracing":
					add(k, child, at)
				case "useRequestIdForTraceSampling":
					if child == false { // istiod also says so where it is true, as it is by default
						add(k, child, at)
					}
				default:
					visit(child, at)
				}
			}
		case []any:
			for _, child := range v {
				visit(child, at)
			}
		}
	}
	for _, l := range listeners {
		visit(l, "")
	}
	return places.String()
}

// typesWithStats returns types with stats.PluginConfig, which is in no Go package. Its fields are those of
// https://istio.io/latest/docs/reference/config/proxy_extensions/stats/.
func typesWithStats(t *testing.T) *protoregistry.Types {
	t.Helper()
	field := func(name string, number int32, kind descriptorpb.FieldDescriptorProto_Type,
		label descriptorpb.FieldDescriptorProto_Label, message string) *descriptorpb.FieldDescriptorProto {
		f := &descriptorpb.FieldDescriptorProto{Name: &name, Number: &number, Type: &kind, Label: &label}
		if message != "" {
			f.TypeName = &message
		}
		return f
	}
	const (
		text, flag, message = descriptorpb.FieldDescriptorProto_TYPE_STRING, descriptorpb.FieldDescriptorProto_TYPE_BOOL,
			descriptorpb.FieldDescriptorProto_TYPE_MESSAGE
		one, many = descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL, descriptorpb.FieldDescriptorProto_LABEL_REPEATED
	)
	entry := &descriptorpb.DescriptorProto{
		Name: proto.String("DimensionsEntry"), Options: &descriptorpb.MessageOptions{MapEntry: proto.Bool(true)},
		Field: []*descriptorpb.FieldDescriptorProto{field("key", 1, text, one, ""), field("value", 2, text, one, "")},
	}
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: proto.String("stats.proto"), Package: proto.String("stats"), Syntax: proto.String("proto3"),
		Dependency: []string{"google/protobuf/duration.proto"},
		MessageType: []*descriptorpb.DescriptorProto{
			{Name: proto.String("MetricConfig"), NestedType: []*descriptorpb.DescriptorProto{entry}, Field: []*descriptorpb.FieldDescriptorProto{
				field("dimensions", 1, message, many, ".stats.MetricConfig.DimensionsEntry"), field("name", 2, text, one, ""),
				field("tags_to_remove", 3, text, many, ""), field("drop", 5, flag, one, ""),
			}},
			{Name: proto.String("PluginConfig"), Field: []*descriptorpb.FieldDescriptorProto{
				field("disable_host_header_fallback", 6, flag, one, ""), field("tcp_reporting_duration", 7, message, one, ".google.protobuf.Duration"),
				field("metrics", 8, message, many, ".stats.MetricConfig"),
			}},
		},
	}, protoregistry.GlobalFiles)
	must.Succeed(t, err)
	types := &protoregistry.Types{}
	for i := range file.Messages().Len() {
		must.Succeed(t, types.RegisterMessage(dynamicpb.NewMessageType(file.Messages().Get(i))))
	}
	return types
}
