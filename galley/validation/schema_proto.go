package validation

import (
	"encoding/base64"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/istiod-lite/istiod-lite/api/diag"
)

// protoSchema compares a tree with a proto message. It also changes the tree into the form that protojson expects: JSON
// names of fields, durations in seconds, and booleans for YAML 1.1's yes and no.
type protoSchema struct {
	*findings
	lenient bool // a field unknown here is removed with a warning
	// strict accepts only the types of the CustomResourceDefinitions: no quoted numbers and no numbers for enums.
	strict bool
	secure bool // an unknown field is an error in an object in force
	// admission reduces faults that Istio's webhook accepts to warnings, and removes the fields.
	admission bool
	// doubt is optional. It is set if the tree has a value in which protojson may find a fault that protoSchema does not
	// look for: data of any form, keys that are repeated or are numbers, and numbers other than whole ones of 32 bits.
	doubt *bool
}

// doubted records a doubt.
func (s protoSchema) doubted() {
	if s.doubt != nil {
		*s.doubt = true
	}
}

func (s protoSchema) message(n *node, md protoreflect.MessageDescriptor, path string) {
	if n.shape != mapping {
		s.errorAt(n.pos, path, "WrongType", "write a mapping of fields", "expected a mapping, found %s", n.describe())
		return
	}
	seen := make([]bool, md.Fields().Len())
	oneofs := make([]string, md.Oneofs().Len()) // the field of each that is set
	if s.lenient {
		s.forgetUnknown(n, md, path)
	}
	for i := range n.fields {
		f := &n.fields[i]
		fd := md.Fields().ByJSONName(f.name)
		if fd == nil {
			fd = md.Fields().ByName(protoreflect.Name(f.name))
		}
		if fd == nil {
			s.errorAt(f.pos, fieldPath(path, f.name), "UnknownField", diag.UnknownName(f.name, jsonNames(md)), "unknown field %q", f.name)
			continue
		}
		f.name = fd.JSONName()
		sub := fieldPath(path, f.name)
		if seen[fd.Index()] {
			s.errorAt(f.pos, sub, "DuplicateKey", "keep one of the two", "field %q is given twice, as %s and %s", f.name, fd.JSONName(), fd.Name())
			continue
		}
		seen[fd.Index()] = true
		if f.value.shape == null && !isValue(fd) {
			continue
		}
		if o := fd.ContainingOneof(); o != nil && !o.IsSynthetic() {
			if other := oneofs[o.Index()]; other != "" {
				if s.admission {
					s.add(diag.Warning, f.pos, sub, "OneOf", "keep one of the two", "%s and %s cannot both be set"+unused, other, f.name)
					later := md.Fields().ByJSONName(other)
					if later.Index() > fd.Index() {
						later, fd = fd, later
					}
					s.field(f.value, md.Fields().ByJSONName(f.name), sub)
					n.get(later.JSONName()).shape = null
					oneofs[o.Index()] = fd.JSONName()
					continue
				}
				s.errorAt(f.pos, sub, "OneOf", "keep one of the two", "%s and %s cannot both be set", other, f.name)
				continue
			}
			oneofs[o.Index()] = f.name
		}
		s.field(f.value, fd, sub)
	}
}

func (s protoSchema) forgetUnknown(n *node, md protoreflect.MessageDescriptor, path string) {
	n.fields = slices.DeleteFunc(n.fields, func(f field) bool {
		if md.Fields().ByJSONName(f.name) != nil || md.Fields().ByName(protoreflect.Name(f.name)) != nil {
			return false
		}
		message := "unknown field %q is ignored"
		if s.secure {
			message = "unknown field %q" + unused
		}
		s.add(diag.Warning, f.pos, fieldPath(path, f.name), "UnknownField", "", message, f.name)
		return true
	})
}

func (s protoSchema) field(n *node, fd protoreflect.FieldDescriptor, path string) {
	switch {
	case fd.IsMap():
		s.entries(n, fd, path)
	case fd.IsList():
		s.list(n, fd, path)
	default:
		s.single(n, fd, path)
	}
}

func (s protoSchema) entries(n *node, fd protoreflect.FieldDescriptor, path string) {
	if n.shape != mapping {
		s.errorAt(n.pos, path, "WrongType", "write a mapping of keys and values", "expected a mapping, found %s", n.describe())
		return
	}
	for _, f := range n.fields {
		s.fill(f.value, fd.MapValue(), fieldPath(path, f.name))
	}
	n.fields = slices.DeleteFunc(n.fields, func(f field) bool { return f.value.shape == null && !isValue(fd.MapValue()) })
	if fd.MapKey().Kind() != protoreflect.StringKind || n.repeats() {
		s.doubted()
	}
	for _, f := range n.fields {
		sub := fieldPath(path, f.name)
		if !mapKey(fd.MapKey(), f.name) {
			s.errorAt(f.pos, sub, "WrongType", "", "key %q is not %s", f.name, kindName(fd.MapKey()))
		}
		s.single(f.value, fd.MapValue(), sub)
	}
}

func (s protoSchema) list(n *node, fd protoreflect.FieldDescriptor, path string) {
	if n.shape != list {
		s.errorAt(n.pos, path, "WrongType", `begin each item with "- "`, "expected a list, found %s", n.describe())
		return
	}
	for i, item := range n.items {
		at := indexPath(path, i)
		s.fill(item, fd, at)
		s.single(item, fd, at)
	}
}

// fill replaces null by an empty message, as Istio's webhook does.
func (s protoSchema) fill(n *node, fd protoreflect.FieldDescriptor, path string) {
	if !s.admission || n.shape != null || isValue(fd) {
		return
	}
	switch fd.Kind() {
	case protoreflect.MessageKind:
		n.shape = mapping
	case protoreflect.StringKind:
		n.shape = text
	case protoreflect.Uint32Kind, protoreflect.Int32Kind:
		n.shape, n.value = number, "0"
	default:
		return
	}
	s.add(diag.Warning, n.pos, path, "WrongType", "remove it", "expected %s, found null"+unused, n.shape)
}

func (s protoSchema) single(n *node, fd protoreflect.FieldDescriptor, path string) {
	if fd.Kind() == protoreflect.MessageKind {
		s.wellKnown(n, fd.Message(), path)
		return
	}
	s.scalar(n, fd, path)
}

// wellKnown handles the messages of package google.protobuf, which have JSON forms of their own.
func (s protoSchema) wellKnown(n *node, md protoreflect.MessageDescriptor, path string) {
	switch md.FullName() {
	case "google.protobuf.Duration":
		s.duration(n, path)
	case "google.protobuf.Timestamp":
		s.doubted()
		if _, err := time.Parse(time.RFC3339Nano, n.value); n.shape != text || err != nil {
			s.errorAt(n.pos, path, "WrongType", "write it as 2006-01-02T15:04:05Z", "expected a time, found %s", n.describe())
		}
	case "google.protobuf.Struct":
		s.doubted()
		if n.shape != mapping {
			s.errorAt(n.pos, path, "WrongType", "write a mapping", "expected a mapping, found %s", n.describe())
		}
	case "google.protobuf.ListValue":
		s.doubted()
		if n.shape != list {
			s.errorAt(n.pos, path, "WrongType", `begin each item with "- "`, "expected a list, found %s", n.describe())
		}
	case "google.protobuf.Any":
		s.doubted()
		if n.str("@type") == "" {
			s.errorAt(n.pos, path, "MissingField", `add "@type"`, "a value of any type has to name its type")
		}
	case "google.protobuf.Value":
		s.doubted()
	case "google.protobuf.BoolValue", "google.protobuf.StringValue",
		"google.protobuf.BytesValue", "google.protobuf.DoubleValue", "google.protobuf.FloatValue",
		"google.protobuf.Int32Value", "google.protobuf.Int64Value", "google.protobuf.UInt32Value", "google.protobuf.UInt64Value":
		s.scalar(n, md.Fields().ByNumber(1), path)
	default:
		s.message(n, md, path)
	}
}

// duration accepts the same forms as Istio: seconds as protojson writes them, and the form of Go, such as 5m or 1h30m.
func (s protoSchema) duration(n *node, path string) {
	d, err := time.ParseDuration(n.value)
	if n.shape != text || err != nil {
		s.errorAt(n.pos, path, "WrongType", `write a number with a unit, such as "1.5s", "250ms" or "5m"`,
			"expected a duration, found %s", quoted(n))
		return
	}
	n.value = strconv.FormatInt(int64(d/time.Second), 10)
	rest := d % time.Second
	if rest != 0 {
		if d < 0 && d > -time.Second {
			n.value = "-0"
		}
		n.value += strings.TrimRight("."+leftPad(int64(rest.Abs())), "0")
	}
	n.value += "s"
}

// leftPad writes nanoseconds with nine digits.
func leftPad(v int64) string {
	digits := strconv.FormatInt(v, 10)
	return strings.Repeat("0", 9-len(digits)) + digits
}

func (s protoSchema) scalar(n *node, fd protoreflect.FieldDescriptor, path string) {
	switch kind := fd.Kind(); kind {
	case protoreflect.EnumKind:
		s.enum(n, fd.Enum(), path)
	case protoreflect.BoolKind:
		if !asBool(n) {
			s.errorAt(n.pos, path, "WrongType", "write true or false", "expected a boolean, found %s", quoted(n))
		}
	case protoreflect.StringKind:
		if n.shape != text {
			s.errorAt(n.pos, path, "WrongType", quoteFix(n)+ofClaims(n, path), "expected a string, found %s", quoted(n))
		}
	case protoreflect.BytesKind:
		s.doubted()
		if n.shape != text || !isBase64(n.value) {
			s.errorAt(n.pos, path, "WrongType", "write the bytes as base64", "expected base64, found %s", n.describe())
		}
	case protoreflect.DoubleKind, protoreflect.FloatKind:
		s.doubted()
		if !s.strict {
			unquote(n)
		}
		if n.shape != number && (s.strict || !beyondJSON(n)) {
			s.errorAt(n.pos, path, "WrongType", numberFix(n, "a number"), "expected a number, found %s", quoted(n))
		}
	default:
		if !s.strict {
			unquote(n)
		}
		low, high := intRange(kind)
		if high > math.MaxUint32 { // asInt compares as float64, which does not have all whole numbers of 64 bits
			s.doubted()
		}
		why := asInt(n, low, high)
		if why == "" && s.admission && strings.ContainsAny(n.value, ".eE") { // no API server sends that
			why = "expected a whole number without point and exponent"
		}
		if why != "" {
			s.errorAt(n.pos, path, "WrongType", numberFix(n, "a whole number"), "%s, found %s", why, quoted(n))
		}
	}
}

func (s protoSchema) enum(n *node, ed protoreflect.EnumDescriptor, path string) {
	if n.shape == text && ed.Values().ByName(protoreflect.Name(n.value)) != nil {
		return
	}
	var names []string
	for i := range ed.Values().Len() {
		names = append(names, string(ed.Values().Get(i).Name()))
	}
	switch {
	case n.shape == number && !s.strict:
		v, err := strconv.ParseInt(n.value, 10, 32)
		if known := ed.Values().ByNumber(protoreflect.EnumNumber(v)); err == nil && known != nil {
			n.shape, n.value = text, string(known.Name())
			return
		}
		if err == nil && s.admission {
			s.add(diag.Warning, n.pos, path, "UnknownValue", diag.UnknownName("", names), "%s is none of the values of this field"+unused, quoted(n))
			return
		}
	}
	s.errorAt(n.pos, path, "UnknownValue", diag.UnknownName(n.value, names), "%s is none of the values of this field", quoted(n))
}

func jsonNames(md protoreflect.MessageDescriptor) []string {
	var names []string
	for i := range md.Fields().Len() {
		names = append(names, md.Fields().Get(i).JSONName())
	}
	return names
}

// isValue reports whether null is a value of the field and not its absence.
func isValue(fd protoreflect.FieldDescriptor) bool {
	return fd.Kind() == protoreflect.MessageKind && fd.Message().FullName() == "google.protobuf.Value" && !fd.IsMap() && !fd.IsList()
}

func mapKey(fd protoreflect.FieldDescriptor, key string) bool {
	switch fd.Kind() {
	case protoreflect.StringKind:
		return true
	case protoreflect.BoolKind:
		return key == "true" || key == "false"
	}
	low, high := intRange(fd.Kind())
	return json.Valid([]byte(key)) && !strings.ContainsAny(key, ".eE") && asInt(&node{shape: number, value: key}, low, high) == ""
}

func kindName(fd protoreflect.FieldDescriptor) string {
	switch fd.Kind() {
	case protoreflect.BoolKind:
		return "true or false"
	case protoreflect.StringKind:
		return "a string"
	}
	return "a whole number"
}

func intRange(kind protoreflect.Kind) (float64, float64) {
	switch kind {
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return math.MinInt32, math.MaxInt32
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return 0, math.MaxUint32
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return 0, math.MaxUint64
	}
	return math.MinInt64, math.MaxInt64
}

func isBase64(s string) bool {
	_, err := base64.StdEncoding.DecodeString(s)
	return err == nil
}
