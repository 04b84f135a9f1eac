package envoyfilter

import (
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/structpb"
)

// remark is a remark about a field of a value that the decoded message does not have.
type remark struct {
	at      string // path from the value, such as ".typed_config.rules"
	message string
	unset   bool // the field has its default value in a message that is merged
}

// maxRemarks limits the number of fields that are named for one value.
const maxRemarks = 10

// remarks returns which fields of a value its type does not have, and which have no effect in a merge because they have
// their default value. It skips messages whose types are not linked.
func remarks(md protoreflect.MessageDescriptor, value *structpb.Struct, merged bool) []remark {
	var w walk
	w.message(md, value, "", merged)
	if more := len(w) - maxRemarks; more > 0 {
		unknown := func(r remark) bool { return !r.unset }
		w = append(w[:maxRemarks:maxRemarks], remark{message: fmt.Sprintf("%d more fields are unknown or without effect", more),
			unset: !slices.ContainsFunc(w[maxRemarks:], unknown)})
	}
	return w
}

type walk []remark

// message checks a message. merged says that it may be merged into another one.
func (w *walk) message(md protoreflect.MessageDescriptor, s *structpb.Struct, at string, merged bool) {
	typed := md.FullName() == "google.protobuf.Any"
	if typed {
		t, err := protoregistry.GlobalTypes.FindMessageByURL(s.GetFields()["@type"].GetStringValue())
		if err != nil {
			return
		}
		md = t.Descriptor()
	}
	if md.FullName().Parent() == "google.protobuf" { // JSON has special forms of these types
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

// value checks a value of a field, or an item of a list or a map.
func (w *walk) value(fd protoreflect.FieldDescriptor, v *structpb.Value, at string, merged bool) {
	switch {
	case fd.Message() != nil && fd.Message().ParentFile().Path() == "google/protobuf/wrappers.proto":
		if merged && isDefault(fd, v) {
			*w = append(*w, remark{at: at, message: "MERGE does not replace another value by zero", unset: true})
		}
	case fd.Message() != nil:
		w.message(fd.Message(), v.GetStructValue(), at, merged)
	case fd.Enum() != nil && isText(v) && fd.Enum().Values().ByName(protoreflect.Name(v.GetStringValue())) == nil:
		*w = append(*w, remark{at: at, message: fmt.Sprintf("%s has no value %q", fd.Enum().FullName(), v.GetStringValue())})
	case merged && !fd.HasPresence() && isDefault(fd, v):
		*w = append(*w, remark{at: at, message: "MERGE does not set a field to its default value", unset: true})
	}
}

func isText(v *structpb.Value) bool {
	_, ok := v.GetKind().(*structpb.Value_StringValue)
	return ok
}

// isDefault reports whether a value of a field without presence is the field's default.
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
