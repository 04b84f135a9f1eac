package feature

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/istiod-lite/istiod-lite/api/diag"
)

// Unsupported returns a finding for each field of a message that is set and that this version does not support, sorted by
// field. The path of the message itself may be empty. lacks is given a field as "Message.field". It returns what is not
// done, and what to do about it; "" is a field that is supported. A field that is set several times is one finding, at
// one of them.
func Unsupported(path string, m proto.Message, lacks func(field string) (message, fix string)) []diag.Diagnostic {
	w := walker{lacks: lacks, seen: map[string]bool{}}
	w.message(m.ProtoReflect(), path)
	slices.SortFunc(w.found, func(a, b diag.Diagnostic) int { return cmp.Compare(a.Field, b.Field) })
	return w.found
}

// NotImplemented returns the finding about a field that this version does not support. Without a fix it is to remove the
// field.
func NotImplemented(field, message, fix string) diag.Diagnostic {
	return diag.Diagnostic{
		Severity: diag.Warning, Code: "NotImplemented", Field: field,
		Message: "not supported by this version: " + message, Fix: cmp.Or(fix, "remove it: it has no effect"),
	}
}

// walker visits the fields of a message that are set.
type walker struct {
	lacks func(string) (string, string)
	seen  map[string]bool
	found []diag.Diagnostic
}

func (w *walker) message(m protoreflect.Message, path string) {
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		at, name := strings.TrimPrefix(path+"."+fd.JSONName(), "."), string(fd.Parent().Name())+"."+fd.JSONName()
		if message, fix := w.lacks(name); message != "" {
			if !w.seen[name] {
				w.seen[name] = true
				w.found = append(w.found, NotImplemented(at, message, fix))
			}
			return true
		}
		switch {
		case fd.IsMap():
			if fd.MapValue().Message() != nil {
				v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
					w.message(v.Message(), at+"["+strconv.Quote(k.String())+"]")
					return true
				})
			}
		case fd.IsList():
			for i := 0; fd.Message() != nil && i < v.List().Len(); i++ {
				w.message(v.List().Get(i).Message(), at+"["+strconv.Itoa(i)+"]")
			}
		case fd.Message() != nil:
			w.message(v.Message(), at)
		}
		return true
	})
}
