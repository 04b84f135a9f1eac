package mesh

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/durations"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/yaml11"
)

// Bounds of one document. Aliases are counted each time they are followed.
const (
	maxDepth = 32
	maxNodes = 100_000
)

// document decodes one YAML document into a message. It walks the node tree along the message's descriptor and decodes
// leaf by leaf, so that each finding has the position of the wrong node, and a field that is set to its zero value
// still replaces a default.
type document struct {
	file, object string
	findings     []diag.Diagnostic
	at           map[string]*yamlv3.Node // nodes of the document by field path
	nodes        int
	misspelt     bool // an unknown field is most likely meant for one that cannot be left out
}

func (d *document) report(s diag.Severity, code, path string, n *yamlv3.Node, message, fix string) {
	f := diag.Diagnostic{Severity: s, Code: code, Object: d.object, Field: path, Message: message, Fix: fix, File: d.file}
	if n != nil {
		f.Line, f.Column = n.Line, n.Column
	}
	d.findings = append(d.findings, f)
}

func (d *document) decode(text []byte, m protoreflect.Message) {
	d.at = map[string]*yamlv3.Node{}
	for line, n := range limits.YAMLNodes(text) {
		if n > 2*maxNodes { // the count before parsing is an upper bound
			d.report(diag.Error, "TooLarge", "", &yamlv3.Node{Line: line, Column: 1}, fmt.Sprintf("at most %d values are read", maxNodes), "")
			return
		}
	}
	dec := yamlv3.NewDecoder(bytes.NewReader(text))
	var root yamlv3.Node
	if err := dec.Decode(&root); err != nil {
		if !errors.Is(err, io.EOF) {
			d.syntax(err)
		}
		return
	}
	for {
		var more yamlv3.Node
		err := dec.Decode(&more)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			d.syntax(err)
			return
		}
		if len(more.Content) > 0 && !null(more.Content[0]) {
			d.report(diag.Error, "Syntax", "", &more, "a second document follows the first", "keep one document")
			return
		}
	}
	d.message("", root.Content[0], m, 0)
	if len(d.at) == 0 && len(d.findings) > 0 { // another text, such as an IstioOperator that contains a mesh configuration
		d.misspelt = true
	}
}

// syntax turns "yaml: line 3: what" into a finding on line 3.
func (d *document) syntax(err error) {
	text, n := strings.TrimPrefix(err.Error(), "yaml: "), (*yamlv3.Node)(nil)
	if rest, ok := strings.CutPrefix(text, "line "); ok {
		if num, what, ok := strings.Cut(rest, ": "); ok {
			if line, err := strconv.Atoi(num); err == nil {
				text, n = what, &yamlv3.Node{Line: line, Column: 1}
			}
		}
	}
	d.report(diag.Error, "Syntax", "", n, "not YAML: "+text, "")
}

// enter follows aliases and counts nodes. It returns nil if the document exceeds its bounds.
func (d *document) enter(path string, n *yamlv3.Node, depth int) *yamlv3.Node {
	if d.nodes++; d.nodes > maxNodes || depth > maxDepth {
		if d.nodes <= maxNodes+1 {
			d.report(diag.Error, "TooLarge", path, n,
				fmt.Sprintf("nested too deep or too large: at most %d levels and %d values are read", maxDepth, maxNodes), "")
			d.nodes = maxNodes + 1
		}
		return nil
	}
	if n.Kind == yamlv3.AliasNode {
		return n.Alias
	}
	return n
}

func null(n *yamlv3.Node) bool { return n.Kind == yamlv3.ScalarNode && n.ShortTag() == "!!null" }

// message decodes a mapping into m, over the values that m has. It reports whether the node is a mapping.
func (d *document) message(path string, n *yamlv3.Node, m protoreflect.Message, depth int) bool {
	if n = d.enter(path, n, depth); n == nil || null(n) {
		return false
	}
	if n.Kind != yamlv3.MappingNode {
		d.report(diag.Error, "InvalidValue", path, n, "must be a mapping of fields", "write the fields below it, indented")
		return false
	}
	last := map[string]int{} // index of the last entry of each key, which is the one in force
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].ShortTag() == "!!merge" {
			d.merge(path, n.Content[i+1], m, depth+1)
			continue
		}
		last[n.Content[i].Value] = i
	}
	seen := map[protoreflect.Name]string{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.ShortTag() == "!!merge" {
			continue
		}
		if l := last[key.Value]; l != i {
			d.report(diag.Warning, "DuplicateField", join(path, key.Value), key,
				fmt.Sprintf("the field is set again on line %d, which is the value that is used", n.Content[l].Line), "remove one of the two")
			continue
		}
		fd := m.Descriptor().Fields().ByJSONName(key.Value)
		if fd == nil {
			fd = m.Descriptor().Fields().ByTextName(key.Value)
		}
		if fd == nil {
			if near := diag.NearestField(key.Value, fieldNames(m.Descriptor())); near != "" && vital(join(path, near)) {
				d.misspelt = true
			}
			fix := diag.UnknownName(key.Value, fieldNames(m.Descriptor()))
			if path == "" {
				fix = cmp.Or(insideOf(n), fix)
			}
			d.report(diag.Error, "UnknownField", join(path, key.Value), key, fmt.Sprintf("there is no field %q", key.Value), fix)
			continue
		}
		where, slot := join(path, fd.JSONName()), fd.Name()
		if o := fd.ContainingOneof(); o != nil {
			slot = o.Name()
		}
		if first, twice := seen[slot]; twice {
			d.report(diag.Error, "DuplicateField", where, key, "only one of "+first+" and "+key.Value+" can be set, once", "remove one of them")
			continue
		}
		seen[slot] = key.Value
		d.at[where] = value
		if o, ok := fd.Options().(*descriptorpb.FieldOptions); ok && o.GetDeprecated() {
			d.report(diag.Warning, "Deprecated", where, key, "the field is deprecated", "see the MeshConfig reference for what replaces it")
		}
		d.field(where, value, m, fd, depth+1)
	}
	return true
}

// insideOf returns what is meant by an object of Kubernetes that holds a mesh configuration, or "".
func insideOf(n *yamlv3.Node) string {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value != "kind" {
			continue
		}
		switch n.Content[i+1].Value {
		case "ConfigMap":
			return "write only the text that is under data.mesh of the ConfigMap into the file"
		case "IstioOperator":
			return "write only what is under spec.meshConfig of the IstioOperator into the file"
		}
	}
	return ""
}

// merge decodes the mapping, or the list of mappings, of a merge key into m. The fields beside the key are decoded
// after the merge, and the first mapping of a list last, so that they take precedence.
func (d *document) merge(path string, n *yamlv3.Node, m protoreflect.Message, depth int) {
	if n = d.enter(path, n, depth); n == nil {
		return
	}
	if n.Kind != yamlv3.SequenceNode {
		d.message(path, n, m, depth+1)
		return
	}
	for _, item := range slices.Backward(n.Content) {
		d.message(path, item, m, depth+1)
	}
}

// Fields of a MeshConfig and a ProxyConfig that are merged with the value below, field by field. Any other message
// replaces the value below as a whole, so a field that it does not set is zero.
var (
	meshMessage  = (&meshv1alpha1.MeshConfig{}).ProtoReflect().Descriptor().FullName()
	proxyMessage = (&meshv1alpha1.ProxyConfig{}).ProtoReflect().Descriptor().FullName()
	laidOver     = map[protoreflect.FullName]bool{
		meshMessage.Append("default_config"): true, meshMessage.Append("default_providers"): true,
		proxyMessage.Append("proxy_metadata"): true, proxyMessage.Append("proxy_headers"): true,
	}
)

func (d *document) field(path string, n *yamlv3.Node, m protoreflect.Message, fd protoreflect.FieldDescriptor, depth int) {
	if n = d.enter(path, n, depth); n == nil || null(n) {
		return
	}
	switch {
	case fd.IsMap():
		if n.Kind != yamlv3.MappingNode {
			d.report(diag.Error, "InvalidValue", path, n, "must be a mapping", "")
			return
		}
		if !laidOver[fd.FullName()] {
			m.Clear(fd)
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, ok := yaml11.Key(n.Content[i])
			if !ok {
				d.report(diag.Error, "InvalidValue", path, n.Content[i],
					shown(n.Content[i])+" is not a name", "quote it: "+strconv.Quote(n.Content[i].Value))
				continue
			}
			where := path + "[" + key + "]"
			d.at[where] = n.Content[i+1]
			if nested(fd.MapValue()) {
				e := m.Mutable(fd).Map().NewValue()
				d.message(where, n.Content[i+1], e.Message(), depth+1)
				m.Mutable(fd).Map().Set(protoreflect.ValueOfString(key).MapKey(), e)
			} else if tmp, ok := d.leaf(where, n.Content[i+1], m, fd, fd.MapValue(), func(v any) any { return map[string]any{key: v} }, depth); ok {
				tmp.Get(fd).Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
					m.Mutable(fd).Map().Set(k, v)
					return true
				})
			}
		}
	case fd.IsList():
		if n.Kind != yamlv3.SequenceNode {
			d.report(diag.Error, "InvalidValue", path, n, "must be a list", "begin each item with a dash")
			return
		}
		list := m.NewField(fd).List()
		for i, item := range n.Content {
			where := path + "[" + strconv.Itoa(i) + "]"
			d.at[where] = item
			if nested(fd) {
				e := list.NewElement()
				d.message(where, item, e.Message(), depth+1)
				list.Append(e)
			} else if tmp, ok := d.leaf(where, item, m, fd, fd, func(v any) any { return []any{v} }, depth); ok {
				list.Append(tmp.Get(fd).List().Get(0))
			}
		}
		m.Set(fd, protoreflect.ValueOfList(list))
	case nested(fd):
		value := m.NewField(fd)
		if laidOver[fd.FullName()] && m.Has(fd) {
			value = protoreflect.ValueOfMessage(proto.Clone(m.Get(fd).Message().Interface()).ProtoReflect())
		}
		if d.message(path, n, value.Message(), depth) {
			m.Set(fd, value)
		}
	default:
		if tmp, ok := d.leaf(path, n, m, fd, fd, func(v any) any { return v }, depth); ok {
			if fd.HasPresence() && !tmp.Has(fd) {
				return
			}
			m.Set(fd, tmp.Get(fd))
		}
	}
}

// nested reports whether a field is a message whose fields are walked. Messages of google.protobuf have their own JSON
// form.
func nested(fd protoreflect.FieldDescriptor) bool {
	return fd.Message() != nil && fd.Message().ParentFile().Package() != "google.protobuf"
}

// leaf decodes one value with protojson, into an empty message of m's type.
func (d *document) leaf(path string, n *yamlv3.Node, m protoreflect.Message,
	fd, of protoreflect.FieldDescriptor, wrap func(any) any, depth int) (protoreflect.Message, bool) {
	v, ok := d.plain(path, n, depth+1)
	if !ok {
		return nil, false
	}
	if s, isString := v.(string); isString && of.Message() != nil && of.Message().FullName() == "google.protobuf.Duration" {
		// Users write 500ms and 1h30m, which protojson does not accept.
		v = durations.Seconds(s)
	}
	text, err := json.Marshal(map[string]any{fd.JSONName(): wrap(v)})
	tmp := m.New()
	if err == nil {
		err = protojson.Unmarshal(text, tmp.Interface())
	}
	if err != nil {
		what, fix := expected(of)
		if n.Kind == yamlv3.ScalarNode && of.Kind() == protoreflect.StringKind {
			fix = "quote it: " + strconv.Quote(n.Value)
		}
		d.report(diag.Error, "InvalidValue", path, n, shown(n)+" is not "+what, fix)
		return nil, false
	}
	return tmp, true
}

// plain converts a node to a value for encoding/json.
func (d *document) plain(path string, n *yamlv3.Node, depth int) (any, bool) {
	if n = d.enter(path, n, depth); n == nil {
		return nil, false
	}
	switch n.Kind {
	case yamlv3.MappingNode:
		out := map[string]any{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			v, ok := d.plain(path, n.Content[i+1], depth+1)
			if !ok {
				return nil, false
			}
			if key, ok := yaml11.Key(n.Content[i]); ok {
				out[key] = v
			}
		}
		return out, true
	case yamlv3.SequenceNode:
		out := []any{}
		for _, item := range n.Content {
			v, ok := d.plain(path, item, depth+1)
			if !ok {
				return nil, false
			}
			out = append(out, v)
		}
		return out, true
	}
	if v, err := yaml11.Value(n); err == nil {
		return v, true
	}
	return n.Value, true
}

func join(path, field string) string {
	if path == "" {
		return field
	}
	return path + "." + field
}

// shown returns a value in the form of findings.
func shown(n *yamlv3.Node) string {
	switch {
	case n.Kind == yamlv3.MappingNode:
		return "a mapping"
	case n.Kind == yamlv3.SequenceNode:
		return "a list"
	case n.ShortTag() == "!!str":
		if _, ok := yaml11.Bool(n); !ok {
			return fmt.Sprintf("%.64q", n.Value)
		}
	}
	return fmt.Sprintf("%.64s", n.Value)
}

// expected describes the values of a field, and how to write one.
func expected(fd protoreflect.FieldDescriptor) (what, fix string) {
	switch fd.Kind() {
	case protoreflect.BoolKind:
		return "a boolean", "write true or false"
	case protoreflect.StringKind:
		return "a string", "write a string"
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return "a number", "write a number"
	case protoreflect.EnumKind:
		var all []string
		for i := range fd.Enum().Values().Len() {
			all = append(all, string(fd.Enum().Values().Get(i).Name()))
		}
		return "a value of this field", "use one of " + strings.Join(all, ", ")
	case protoreflect.MessageKind:
		if name := fd.Message().Name(); name == "Duration" {
			return "a duration", "write a number with a unit, such as 10s, 500ms or 1h30m"
		} else if strings.HasSuffix(string(name), "Value") && fd.Message().Fields().Len() == 1 {
			return expected(fd.Message().Fields().Get(0))
		}
		return "a " + string(fd.Message().Name()), ""
	}
	return "a whole number", "write a whole number"
}

// fieldNames returns the names of a message's fields.
func fieldNames(md protoreflect.MessageDescriptor) (all []string) {
	for i := range md.Fields().Len() {
		all = append(all, md.Fields().Get(i).JSONName())
	}
	return all
}
