package durations

import (
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
)

const (
	anyName      = "google.protobuf.Any"
	durationName = "google.protobuf.Duration"
)

// Seconds converts a duration of Go to the form of protojson. It returns any other text unchanged.
func Seconds(text string) string {
	d, err := time.ParseDuration(text)
	if err != nil {
		return text
	}
	quoted := protojson.Format(durationpb.New(d))
	return quoted[1 : len(quoted)-1]
}

// Rewrite converts the durations of a message to seconds, in place: s is the JSON of a message of type md. It follows
// messages of type Any whose types are linked.
func Rewrite(md protoreflect.MessageDescriptor, s *structpb.Struct) {
	if md.FullName() == anyName {
		t, err := protoregistry.GlobalTypes.FindMessageByURL(s.GetFields()["@type"].GetStringValue())
		if err != nil {
			return
		}
		md = t.Descriptor()
		if special(md) {
			rewrite(md, s.Fields["value"])
			return
		}
	}
	for name, v := range s.GetFields() {
		fd := md.Fields().ByJSONName(name)
		if fd == nil {
			fd = md.Fields().ByTextName(name)
		}
		switch {
		case fd == nil:
		case fd.IsMap() && fd.MapValue().Message() != nil:
			for _, item := range v.GetStructValue().GetFields() {
				rewrite(fd.MapValue().Message(), item)
			}
		case fd.IsMap() || fd.Message() == nil:
		case fd.IsList():
			for _, item := range v.GetListValue().GetValues() {
				rewrite(fd.Message(), item)
			}
		default:
			rewrite(fd.Message(), v)
		}
	}
}

// special reports whether a message has a JSON form of its own.
func special(md protoreflect.MessageDescriptor) bool {
	return md.FullName().Parent() == "google.protobuf"
}

func rewrite(md protoreflect.MessageDescriptor, v *structpb.Value) {
	switch text, is := v.GetKind().(*structpb.Value_StringValue); {
	case md.FullName() == durationName:
		if is {
			text.StringValue = Seconds(text.StringValue)
		}
	case md.FullName() == anyName || !special(md):
		Rewrite(md, v.GetStructValue())
	}
}
