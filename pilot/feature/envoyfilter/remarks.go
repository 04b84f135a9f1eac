package envoyfilter

import (
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/structpb"
)

// remark is about a field of a value that the message made of it does not have.
type remark struct {
	at      string // from the value on, such as ".typed_config.rules"
	message string
	unset   bool // it is what the field is by default, and is merged
}

// maxRemarks is the number of fields of one value that are named.
const maxRemarks = 10

// remarks returns which fields of a value its type does not have, and which cannot be merged because they are what they
// are by default. What is in messages whose types are not linked is not judged.
func remarks(md protoreflect.MessageDescriptor, value *structpb.Struct, merged bool) []remark {
	var w walk
	w.message(md, value, "", merged)
	if more := len(w) - maxRemarks; more > 0 {
		unknown := func(r remark) bool { return !r.unset }
		w = append(w[:maxRemarks:maxRemarks], remark{message: fmt.Sprintf("%d more fields are unknown or without effect", more), unset: !slices.ContainsFunc(w[maxRemarks:], unknown)})
	}
	return w
}

type walk []remark

// message looks at a message. merged: it may be merged into another one.
func (w *walk) message(md protoreflect.MessageDescriptor, s *structpb.Struct, at string, merged bool) {
	typed := md.FullName() == "google.protobuf.Any"
	if typed {
		t, err := protoregistry.GlobalTypes.FindMessageByURL(s.GetFields()["@type"].GetStringValue())
		if err != nil {
			return
		}
		md = t.Descriptor()
	}
	if md.FullName().Parent() == "google.protobuf" { // JSON has its own forms of those
		return
	}
	for _, name := range slices.Sorted(maps.Keys(s.GetFields())) {
		fd := md.Fields().ByJSONName(name)
		if fd == nil {
			fd = md.Fields().ByTextName(name)
		}
		switch v, at := s.Fields[name], at+"."+name; {
		case typed && name == "@type":
		case fd == nil:
			*w = append(*w, remark{at: at, message: fmt.Sprintf("%s has no field %q", md.FullName(), name)})
		case fd.IsMap():
			for _, key := range slices.Sorted(maps.Keys(v.GetStructValue().GetFields())) {
				w.value(fd.MapValue(), v.GetStructValue().Fields[key], at+"."+key, false)
			}
		case fd.IsList():
			for i, item := range v.GetListValue().GetValues() {
				w.value(fd, item, fmt.Sprintf("%s[%d]", at, i), false)
			}
		default:
			w.value(fd, v, at, merged)
		}
	}
}

// value looks at a value of a field, or at an item of a list or a map.
func (w *walk) value(fd protoreflect.FieldDescriptor, v *structpb.Value, at string, merged bool) {
	switch {
	case fd.Message() != nil && fd.Message().ParentFile().Path() == "google/protobuf/wrappers.proto":
		if merged && isDefault(fd, v) {
			*w = append(*w, remark{at: at, message: "MERGE sets this only where nothing else is set: a zero replaces no other value", unset: true})
		}
	case fd.Message() != nil:
		w.message(fd.Message(), v.GetStructValue(), at, merged)
	case fd.Enum() != nil && isText(v) && fd.Enum().Values().ByName(protoreflect.Name(v.GetStringValue())) == nil:
		*w = append(*w, remark{at: at, message: fmt.Sprintf("%s has no value %q", fd.Enum().FullName(), v.GetStringValue())})
	case merged && !fd.HasPresence() && isDefault(fd, v):
		*w = append(*w, remark{at: at, message: "MERGE does not set a field to what it is by default", unset: true})
	}
}

func isText(v *structpb.Value) bool {
	_, ok := v.GetKind().(*structpb.Value_StringValue)
	return ok
}

// isDefault reports whether a value of a field without presence is what the field is where it is not set.
func isDefault(fd protoreflect.FieldDescriptor, v *structpb.Value) bool {
	switch k := v.GetKind().(type) {
	case *structpb.Value_BoolValue:
		return !k.BoolValue
	case *structpb.Value_NumberValue:
		return k.NumberValue == 0
	case *structpb.Value_StringValue:
		return k.StringValue == "" || fd.Enum() != nil && fd.Enum().Values().ByName(protoreflect.Name(k.StringValue)).Number() == 0
	}
	return false
}
