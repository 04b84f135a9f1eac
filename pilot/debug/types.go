package debug

import (
	"encoding/json"
	"errors"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// SentJSON encodes resources of proxies as JSON. They may have types that no Go package has: Istio's own filters, and
// any type in an EnvoyFilter.
func SentJSON(m proto.Message) (json.RawMessage, error) {
	return protojson.MarshalOptions{Resolver: sentTypes{protoregistry.GlobalTypes}}.Marshal(m)
}

// sentTypes resolves the types of resources. Unknown types have no fields.
type sentTypes struct{ *protoregistry.Types }

func (t sentTypes) FindMessageByURL(url string) (protoreflect.MessageType, error) {
	known, err := t.Types.FindMessageByURL(url)
	if !errors.Is(err, protoregistry.NotFound) {
		return known, err
	}
	name := url[strings.LastIndexByte(url, '/')+1:]
	file := statsTypes()
	if name != "stats.PluginConfig" {
		file = &descriptorpb.FileDescriptorProto{Syntax: proto.String("proto3"), Name: proto.String("unknown.proto")}
		last := strings.LastIndexByte(name, '.')
		if last > 0 {
			file.Package = proto.String(name[:last])
		}
		file.MessageType = []*descriptorpb.DescriptorProto{{Name: proto.String(name[last+1:])}}
	}
	made, err := protodesc.NewFile(file, protoregistry.GlobalFiles)
	if err != nil {
		return nil, protoregistry.NotFound
	}
	of := made.Messages().ByName(protoreflect.Name(name[strings.LastIndexByte(name, '.')+1:]))
	if of == nil {
		return nil, protoregistry.NotFound
	}
	return dynamicpb.NewMessageType(of), nil
}

// statsTypes describes stats.PluginConfig, as documented in
// https://istio.io/latest/docs/reference/config/proxy_extensions/stats/.
func statsTypes() *descriptorpb.FileDescriptorProto {
	field := func(
		name string, number int32, kind descriptorpb.FieldDescriptorProto_Type, label descriptorpb.FieldDescriptorProto_Label, message string,
	) *descriptorpb.FieldDescriptorProto {
		f := &descriptorpb.FieldDescriptorProto{Name: &name, Number: &number, Type: &kind, Label: &label}
		if message != "" {
			f.TypeName = &message
		}
		return f
	}
	const (
		text, flag = descriptorpb.FieldDescriptorProto_TYPE_STRING, descriptorpb.FieldDescriptorProto_TYPE_BOOL
		message    = descriptorpb.FieldDescriptorProto_TYPE_MESSAGE
		one, many  = descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL, descriptorpb.FieldDescriptorProto_LABEL_REPEATED
	)
	entry := &descriptorpb.DescriptorProto{
		Name: proto.String("DimensionsEntry"), Options: &descriptorpb.MessageOptions{MapEntry: proto.Bool(true)},
		Field: []*descriptorpb.FieldDescriptorProto{field("key", 1, text, one, ""), field("value", 2, text, one, "")},
	}
	return &descriptorpb.FileDescriptorProto{
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
	}
}
