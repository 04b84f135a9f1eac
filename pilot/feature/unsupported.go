package feature

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"

	"github.com/istiod-lite/istiod-lite/api/diag"
)

// Unsupported returns a finding for each field of a message that is set and that this version does not support, sorted
// by field. path is the path of the message itself and may be empty. lacks gets a field as "Message.field" and returns
// the message and the remedy, or "" for a supported field. A field that is set several times gives one finding, at the
// first of them.
func Unsupported(path string, m proto.Message, lacks func(field string) (message, fix string)) (found []diag.Diagnostic) {
	seen := map[string]bool{}
	inside := 0 // length of the path to the unsupported field that is being visited
	_ = protorange.Options{Stable: true}.Range(m.ProtoReflect(), func(at protopath.Values) error {
		step := at.Path.Index(-1)
		if inside > 0 || step.Kind() != protopath.FieldAccessStep {
			return nil
		}
		name := string(step.FieldDescriptor().Parent().Name()) + "." + step.FieldDescriptor().JSONName()
		message, fix := lacks(name)
		if message == "" {
			return nil
		}
		inside = len(at.Path)
		if !seen[name] {
			seen[name] = true
			found = append(found, NotImplemented(fieldOf(path, at.Path), message, fix))
		}
		return nil
	}, func(at protopath.Values) error {
		if len(at.Path) == inside {
			inside = 0
		}
		return nil
	})
	slices.SortFunc(found, func(a, b diag.Diagnostic) int { return cmp.Compare(a.Field, b.Field) })
	return found
}

// fieldOf returns a path in the form of findings: spec.http[0].match["a.b"].
func fieldOf(field string, path protopath.Path) string {
	for _, step := range path {
		switch step.Kind() {
		case protopath.FieldAccessStep:
			field += "." + step.FieldDescriptor().JSONName()
		case protopath.ListIndexStep:
			field += "[" + strconv.Itoa(step.ListIndex()) + "]"
		case protopath.MapIndexStep:
			field += "[" + strconv.Quote(step.MapIndex().String()) + "]"
		}
	}
	return strings.TrimPrefix(field, ".")
}

// NotImplemented returns the finding about a field that this version does not support. If fix is empty, the remedy is
// to remove the field.
func NotImplemented(field, message, fix string) diag.Diagnostic {
	return diag.Diagnostic{
		Severity: diag.Warning, Code: "NotImplemented", Field: field,
		Message: "not supported by this version: " + message, Fix: cmp.Or(fix, "remove it: it has no effect"),
	}
}
