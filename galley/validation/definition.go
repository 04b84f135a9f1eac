package validation

import (
	"strconv"
	"strings"

	runtime "k8s.io/apimachinery/pkg/runtime/schema"
	kfield "k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/galley/validation/schema"
)

// Rules are the options for checking text that no API server has checked.
type Rules struct {
	Limits  limits.Limits
	Review  bool        // the objects are not in force yet, so some tolerable faults are errors
	Schemas *schema.Set // the CustomResourceDefinitions; nil if objects are not checked against them

	Namespace string // namespace of objects that name none; "default" if empty

	Vital []*kinds.Kind // further kinds, besides the restricting kinds, without whose objects a server must not start
}

// definition adds the faults by the CustomResourceDefinition of the object's kind that no other finding covers.
func (d *decoder) definition(kind *kinds.Kind, n *node, f *findings) {
	if d.schemas == nil || kind.Group == "" {
		return
	}
	object, ok := n.plainValue().(map[string]any)
	if !ok {
		return
	}
	version := kind.Versions[0]
	if _, v, ok := strings.Cut(n.str("apiVersion"), "/"); ok {
		version = v
	}
	delete(object, "status")
	errs, err := d.schemas.Check(runtime.GroupVersionKind{Group: kind.Group, Version: version, Kind: kind.Name}, object)
	if err != nil {
		f.errorAt(n.pos, "", "Internal", "report it, with the object", "the object could not be judged: %v", err)
		return
	}
	found := &findings{file: f.file}
	for _, e := range errs {
		code := badValue
		if e.Type == kfield.ErrorTypeRequired {
			code = "MissingField"
		}
		found.add(diag.Error, n.locate(e.Field), e.Field, code, schemaFix(e), "%s", schemaMessage(e))
	}
	f.addUnrelated(found.list)
}

func schemaMessage(e *kfield.Error) string {
	switch e.Type {
	case kfield.ErrorTypeRequired:
		if e.Detail == "" {
			return e.Field[strings.LastIndexByte(e.Field, '.')+1:] + " is required"
		}
	case kfield.ErrorTypeNotSupported:
		return "the value is none of those of this field"
	case kfield.ErrorTypeDuplicate:
		return "the entry is there twice"
	}
	if strings.HasPrefix(e.Detail, "must validate one and only one schema") {
		return "only one of its alternatives can be set"
	}
	if e.Detail == "" {
		return e.Type.String()
	}
	detail := strings.TrimPrefix(e.Detail, e.Field+" in body ")
	if kind, found, ok := strings.Cut(detail, `: "`); ok && strings.HasPrefix(kind, "must be of type ") {
		return kind + ", not " + strings.TrimSuffix(found, `"`)
	}
	return strings.Replace(detail, "should match '", "must match '", 1)
}

func schemaFix(e *kfield.Error) string {
	switch e.Type {
	case kfield.ErrorTypeRequired:
		return "add it"
	case kfield.ErrorTypeNotSupported:
		return "use one of " + strings.ReplaceAll(strings.TrimPrefix(e.Detail, "supported values: "), `"`, "")
	case kfield.ErrorTypeDuplicate:
		return "keep one of the two"
	case kfield.ErrorTypeTooMany, kfield.ErrorTypeTooLong:
		return "shorten it"
	}
	return ""
}

// plainValue returns the tree in the JSON form of the API server's libraries: whole numbers are of type int64.
func (n *node) plainValue() any {
	switch n.shape {
	case boolean:
		return jsonBool(n.value) == "true"
	case number:
		if v, err := strconv.ParseInt(n.value, 10, 64); err == nil {
			return v
		}
		v, err := strconv.ParseFloat(n.value, 64)
		if err != nil {
			return nil
		}
		return v
	case text:
		return n.value
	case list:
		out := make([]any, 0, len(n.items))
		for _, item := range n.items {
			out = append(out, item.plainValue())
		}
		return out
	case mapping:
		out := make(map[string]any, len(n.fields))
		for _, f := range n.fields {
			out[f.name] = f.value.plainValue()
		}
		return out
	}
	return nil
}

// locate returns the position of the value at a path of Kubernetes' libraries, or of the enclosing value if it is not
// written.
func (n *node) locate(path string) pos {
	at := n.pos
	for path != "" {
		var next *node
		switch {
		case strings.HasPrefix(path, "["):
			key, rest, ok := strings.Cut(path[1:], "]")
			if i, err := strconv.Atoi(key); err == nil && n.shape == list && i >= 0 && i < len(n.items) {
				next = n.items[i]
			} else {
				next = n.get(key)
			}
			if !ok {
				return at
			}
			path = rest
		default:
			path = strings.TrimPrefix(path, ".")
			size := -1
			for _, f := range n.fields {
				rest, ok := strings.CutPrefix(path, f.name)
				if ok && len(f.name) > size && (rest == "" || rest[0] == '.' || rest[0] == '[') {
					next, size = f.value, len(f.name)
				}
			}
			path = path[max(size, 0):]
		}
		if next == nil {
			return at
		}
		n, at = next, next.pos
	}
	return at
}
