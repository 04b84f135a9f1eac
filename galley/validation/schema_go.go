package validation

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/diag"
)

// goSchema compares a tree with a Go type, by the rules of a strict JSON decoder: names are case-sensitive, and a field
// that the type does not have is an error. Its messages never quote values, which may come from a Secret.
type goSchema struct {
	*findings
	lenient bool // a field unknown here, which a newer cluster wrote, is removed with a warning
}

// value compares n with type t. Types with a decoder of their own (times, quantities) check their values themselves.
func (s goSchema) value(n *node, t reflect.Type, path string) {
	if n.shape == null {
		return
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if u, ok := reflect.New(t).Interface().(json.Unmarshaler); ok {
		if err := u.UnmarshalJSON(n.json()); err != nil {
			s.errorAt(n.pos, path, "WrongType", "", "%s is not %s", n.describe(), cmp.Or(goTypeNames[t.Name()], "valid here"))
		}
		return
	}
	switch t.Kind() {
	case reflect.Struct:
		s.structure(n, t, path)
	case reflect.Map:
		if !s.want(n, mapping, path, "write a mapping of keys and values") {
			return
		}
		for _, f := range n.fields {
			s.value(f.value, t.Elem(), fieldPath(path, f.name))
		}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			if s.want(n, text, path, "write the bytes as base64") {
				if _, err := base64.StdEncoding.DecodeString(n.value); err != nil {
					s.errorAt(n.pos, path, "WrongType", "write the bytes as base64", "the value is not base64")
				}
			}
			return
		}
		if !s.want(n, list, path, `begin each item with "- "`) {
			return
		}
		for i, item := range n.items {
			s.value(item, t.Elem(), indexPath(path, i))
		}
	case reflect.String:
		s.want(n, text, path, quoteFix(n))
	case reflect.Bool:
		if !asBool(n) {
			s.want(n, boolean, path, "write true or false")
		}
	case reflect.Float32, reflect.Float64:
		s.want(n, number, path, "write a number")
	case reflect.Int, reflect.Int64, reflect.Int32, reflect.Int16, reflect.Int8,
		reflect.Uint, reflect.Uint64, reflect.Uint32, reflect.Uint16, reflect.Uint8:
		if s.want(n, number, path, "write a whole number without quotes") {
			low, high := goRange(t)
			switch why := asInt(n, low, high); {
			case why != "":
				s.errorAt(n.pos, path, "WrongType", "write a whole number", "%s, found %s", why, n.value)
			case strings.ContainsAny(n.value, ".eE"):
				s.errorAt(n.pos, path, "WrongType", "write "+plainInt(n.value), "expected a whole number, found %s", n.value)
			}
		}
	}
}

func (s goSchema) want(n *node, want shape, path, fix string) bool {
	if n.shape != want {
		s.errorAt(n.pos, path, "WrongType", fix, "expected %s, found %s", want, n.describe())
		return false
	}
	return true
}

func (s goSchema) structure(n *node, t reflect.Type, path string) {
	if !s.want(n, mapping, path, "write a mapping of fields") {
		return
	}
	fields := map[string]reflect.Type{}
	jsonFields(t, fields)
	kept := n.fields[:0]
	for _, f := range n.fields {
		sub := fieldPath(path, f.name)
		ft, known := fields[f.name]
		switch {
		case known:
			inner := s
			inner.lenient = s.lenient || f.name == "status" && path == ""
			inner.value(f.value, ft, sub)
		case s.lenient:
			s.add(diag.Warning, f.pos, sub, "UnknownField", "", "unknown field %q is ignored", f.name)
			continue
		default:
			names := slices.Collect(maps.Keys(fields))
			s.errorAt(f.pos, sub, "UnknownField", diag.UnknownName(f.name, names), "unknown field %q", f.name)
		}
		kept = append(kept, f)
	}
	n.fields = kept
}

// jsonFields gathers the JSON names of a struct's fields, with those of the structs that it embeds.
func jsonFields(t reflect.Type, into map[string]reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported():
		case name != "":
			into[name] = f.Type
		case f.Anonymous || strings.Contains(options, "inline"):
			embedded := f.Type
			for embedded.Kind() == reflect.Pointer {
				embedded = embedded.Elem()
			}
			jsonFields(embedded, into)
		default:
			into[f.Name] = f.Type
		}
	}
}

// goTypeNames describes the values of types with decoders of their own.
var goTypeNames = map[string]string{
	"Time":        "a time such as 2006-01-02T15:04:05Z",
	"MicroTime":   "a time such as 2006-01-02T15:04:05Z",
	"Duration":    "a duration such as 1m30s",
	"Quantity":    "a quantity such as 100m or 1Gi",
	"IntOrString": "a whole number or a string",
}

// plainInt writes a whole number without fraction and exponent.
func plainInt(token string) string {
	v, err := strconv.ParseFloat(token, 64)
	if err != nil {
		return "a whole number"
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}

// goRange returns the smallest and the largest value of an integer type.
func goRange(t reflect.Type) (low, high float64) {
	if t.Kind() >= reflect.Uint {
		return 0, math.Ldexp(1, t.Bits()) - 1
	}
	return -math.Ldexp(1, t.Bits()-1), math.Ldexp(1, t.Bits()-1) - 1
}
