package analysis

import (
	"maps"
	"slices"
	"strconv"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// deprecated reports fields that are deprecated in the definition of Istio's objects.
func (a *analysis) deprecated() {
	for _, o := range a.objects {
		if m, ok := o.Spec.(proto.Message); ok && o.Kind.Istio && a.concerns(o) {
			a.deprecatedIn(o, m.ProtoReflect(), "spec")
		}
	}
}

func (a *analysis) deprecatedIn(o *kinds.Object, m protoreflect.Message, path string) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if !m.Has(fd) {
			continue
		}
		v := m.Get(fd)
		field := path + "." + fd.JSONName()
		if options, ok := fd.Options().(*descriptorpb.FieldOptions); ok && options.GetDeprecated() {
			a.report(o, diag.Warning, codeDeprecated, field,
				"see the reference of "+o.Kind.Name+" for what replaces it", "the field %s is deprecated", fd.JSONName())
		}
		switch {
		case fd.IsMap():
			if fd.MapValue().Message() != nil {
				values := map[string]protoreflect.Message{}
				v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
					values[k.String()] = v.Message()
					return true
				})
				for _, k := range slices.Sorted(maps.Keys(values)) {
					a.deprecatedIn(o, values[k], field+"["+strconv.Quote(k)+"]")
				}
			}
		case fd.Message() == nil:
		case fd.IsList():
			for i := range v.List().Len() {
				a.deprecatedIn(o, v.List().Get(i).Message(), indexed(field, i))
			}
		default:
			a.deprecatedIn(o, v.Message(), field)
		}
	}
}
