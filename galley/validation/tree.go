package validation

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	yaml "go.yaml.in/yaml/v3"

	"github.com/istiod-lite/istiod-lite/api/yaml11"
)

// shape is the JSON type of a node.
type shape int

const (
	null shape = iota
	boolean
	number
	text
	list
	mapping
)

func (s shape) String() string {
	return [...]string{"null", "a boolean", "a number", "a string", "a list", "a mapping"}[s]
}

// pos is a position in a file. Line and column begin at 1; columns are characters.
type pos struct{ line, col int }

// node is a JSON value with its position.
type node struct {
	pos
	shape  shape
	plain  bool   // a scalar without quotes
	value  string // boolean: the word of YAML 1.1; number: the JSON token; text: the string
	fields []field
	items  []*node
}

// field is one entry of a mapping. pos is the position of its name.
type field struct {
	pos
	name  string
	value *node
}

func (n *node) get(name string) *node {
	if n == nil {
		return nil
	}
	for i := range n.fields {
		if n.fields[i].name == name {
			return n.fields[i].value
		}
	}
	return nil
}

// str returns the text at a path of field names, or "".
func (n *node) str(path ...string) string {
	for _, name := range path {
		n = n.get(name)
	}
	if n == nil || n.shape != text {
		return ""
	}
	return n.value
}

func (n *node) remove(name string) {
	for i := range n.fields {
		if n.fields[i].name == name {
			n.fields = append(n.fields[:i], n.fields[i+1:]...)
			return
		}
	}
}

// repeats reports whether a mapping has two fields of one name, as only JSON can.
func (n *node) repeats() bool {
	if n == nil {
		return false
	}
	names := map[string]bool{}
	for _, f := range n.fields {
		if names[f.name] {
			return true
		}
		names[f.name] = true
	}
	return false
}

// clone returns a copy of the tree.
func (n *node) clone() *node {
	out := *n
	out.fields, out.items = slices.Clone(n.fields), slices.Clone(n.items)
	for i := range out.fields {
		out.fields[i].value = out.fields[i].value.clone()
	}
	for i := range out.items {
		out.items[i] = out.items[i].clone()
	}
	return &out
}

// describe names a node's type for a message, without its value, which may be secret.
func (n *node) describe() string {
	if n.overflows() {
		return "a number that is too large"
	}
	return n.shape.String()
}

// overflows reports whether n is a number that no float can hold, so that YAML reads it as text.
func (n *node) overflows() bool {
	_, err := strconv.ParseFloat(n.value, 64)
	return n.shape == text && n.plain && errors.Is(err, strconv.ErrRange)
}

// Bounds on the number of values. A value takes about a hundred bytes in memory, but only two in the text.
const (
	valueBudget = 200_000   // for one object, and for the values that aliases of a file repeat
	fileBudget  = 2_000_000 // for all documents of a file

	// nodeBudget bounds one document before it is parsed, as limits.YAMLNodes counts: a parser uses about 500 bytes for
	// each node.
	nodeBudget = 240_000
)

// fileValues returns how many values the documents of a file of a size may hold, including repetition by aliases.
func fileValues(size int) int { return min(valueBudget+size/2, fileBudget) }

// treeBuilder builds the trees of the documents of one file.
type treeBuilder struct {
	maxDepth int
	values   int                 // number of values so far
	budget   int                 // maximum of values
	open     map[*yaml.Node]bool // anchors being expanded, to detect cycles
	found    *findings           // of the document
	dead     bool                // the document cannot be used at all
}

func (b *treeBuilder) fail(n *yaml.Node, path, fix, format string, args ...any) *node {
	if !b.dead {
		b.dead = true
		b.found.errorAt(pos{n.Line, n.Column}, path, "Limit", fix, format, args...)
	}
	return &node{pos: pos{n.Line, n.Column}}
}

func (b *treeBuilder) build(n *yaml.Node, path string, depth int) *node {
	if b.dead {
		return &node{pos: pos{n.Line, n.Column}}
	}
	if depth > b.maxDepth {
		return b.fail(n, "", "nest less deeply", "values are nested more than %d levels deep", b.maxDepth)
	}
	if b.values++; b.values > b.budget {
		return b.fail(n, path, "split the file, and write aliases out",
			"the file holds more than %d values, counting what aliases repeat", b.budget)
	}
	at := pos{n.Line, n.Column}
	switch n.Kind {
	case yaml.AliasNode:
		if b.open[n.Alias] {
			return b.fail(n, path, "write the value out", "alias *%s stands inside its own anchor", n.Value)
		}
		b.open[n.Alias] = true
		out := b.build(n.Alias, path, depth)
		delete(b.open, n.Alias)
		return out
	case yaml.SequenceNode:
		out := &node{pos: at, shape: list, items: make([]*node, 0, len(n.Content))}
		for i, item := range n.Content {
			out.items = append(out.items, b.build(item, indexPath(path, i), depth+1))
		}
		return out
	case yaml.MappingNode:
		return b.mapping(n, path, depth)
	case yaml.ScalarNode:
		return b.scalar(n, path)
	}
	return &node{pos: at}
}

// mapping returns a mapping with its merged fields. As in kubectl, the last occurrence of a field takes precedence, and
// a merge takes precedence over fields before it.
func (b *treeBuilder) mapping(n *yaml.Node, path string, depth int) *node {
	out := &node{pos: pos{n.Line, n.Column}, shape: mapping, fields: make([]field, 0, len(n.Content)/2)}
	first := make(map[string]pos, len(n.Content)/2)
	var index map[string]int // index of the fields, if there is a merge
	set := func(f field) {
		if i, again := index[f.name]; again {
			out.fields[i] = f
			return
		}
		if index != nil {
			index[f.name] = len(out.fields)
		}
		out.fields = append(out.fields, f)
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		at := pos{k.Line, k.Column}
		if k.Kind == yaml.AliasNode {
			k = k.Alias
		}
		if k.Kind != yaml.ScalarNode {
			b.found.errorAt(at, path, "WrongType", "use a plain name", "a field name cannot be a list or a mapping")
			continue
		}
		if k.Tag == "!!merge" {
			if index == nil {
				index = make(map[string]int, len(out.fields))
				for j, f := range out.fields {
					index[f.name] = j
				}
			}
			for _, f := range b.merged(v, path, depth) {
				if _, written := first[f.name]; written {
					b.found.warnAt(at, fieldPath(path, f.name), "DuplicateKey",
						"write the merge first", "the merge replaces the field, which stands before it")
				}
				set(f)
			}
			continue
		}
		name, ok := yaml11.Key(k)
		if !ok {
			b.found.errorAt(at, path, "WrongType", "quote it", "%q is not the name of a field", k.Value)
			continue
		}
		if p, dup := first[name]; dup {
			fix := "keep one of the two"
			if path == "" && name == "apiVersion" {
				fix = "write --- on a line of its own where the next object begins"
			}
			b.found.errorAt(at, fieldPath(path, name), "DuplicateKey", fix, "field %q is given twice, first on line %d", name, p.line)
			continue
		}
		first[name] = at
		set(field{pos: at, name: name, value: b.build(v, fieldPath(path, name), depth+1)})
	}
	return out
}

// merged returns the fields that a merge adds. If several mappings of a list have a field, the first one takes
// precedence.
func (b *treeBuilder) merged(m *yaml.Node, path string, depth int) (fields []field) {
	sources := []*yaml.Node{m}
	if m.Kind == yaml.SequenceNode {
		sources = m.Content
	}
	known := map[string]bool{}
	for _, source := range sources {
		merged := b.build(source, path, depth+1)
		if b.dead {
			break
		}
		if merged.shape != mapping {
			b.found.errorAt(pos{source.Line, source.Column}, path, "WrongType",
				"merge an alias of a mapping", "<< merges mappings, not %s", merged.describe())
			continue
		}
		for _, f := range merged.fields {
			if !known[f.name] {
				known[f.name] = true
				fields = append(fields, f)
			}
		}
	}
	return fields
}

func (b *treeBuilder) scalar(n *yaml.Node, path string) *node {
	out := &node{pos: pos{n.Line, n.Column}, shape: text, value: n.Value,
		plain: n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) == 0}
	if _, ok := yaml11.Bool(n); ok {
		out.shape = boolean
		return out
	}
	switch n.Tag {
	case "!!str", "!!timestamp":
		return out
	case "!!null":
		out.shape = null
		return out
	case "!!bool", "!!int", "!!float":
		v, err := yaml11.Value(n)
		if err != nil {
			b.found.errorAt(out.pos, path, "WrongType", "remove the tag", "the value does not fit its tag %s", n.Tag)
			return out
		}
		token, err := jsonToken(n.Value, v)
		if err != nil {
			b.found.errorAt(out.pos, path, "WrongType", "quote it, or write a number", "%s is a number that JSON has no form for", n.Value)
			return out
		}
		out.shape, out.value = number, token
		return out
	}
	b.found.errorAt(out.pos, path, "WrongType", "remove the tag", "tag %s has no meaning here", n.Tag)
	return out
}

// jsonToken returns a YAML number as JSON, as kubectl does: 80.0 becomes the whole number 80. Whole numbers of any
// length keep their digits if JSON allows them. It fails for values without a JSON form, such as .inf.
func jsonToken(raw string, v any) (string, error) {
	switch v := v.(type) {
	case float64:
		text, err := json.Marshal(v)
		return string(text), err
	default:
		if json.Valid([]byte(raw)) {
			return raw, nil
		}
		return fmt.Sprint(v), nil
	}
}

// appendJSON appends the tree as JSON, and the positions of its values in the text.
func (n *node) appendJSON(buf []byte, marks *[]mark) []byte {
	*marks = append(*marks, mark{len(buf), n.pos})
	switch n.shape {
	case null:
		return append(buf, "null"...)
	case boolean:
		return append(buf, jsonBool(n.value)...)
	case number:
		return append(buf, n.value...)
	case text:
		return appendString(buf, n.value)
	case list:
		buf = append(buf, '[')
		for i, item := range n.items {
			if i > 0 {
				buf = append(buf, ',')
			}
			buf = item.appendJSON(buf, marks)
		}
		return append(buf, ']')
	}
	buf = append(buf, '{')
	for i, f := range n.fields {
		if i > 0 {
			buf = append(buf, ',')
		}
		*marks = append(*marks, mark{len(buf), f.pos})
		buf = appendString(buf, f.name)
		buf = append(buf, ':')
		buf = f.value.appendJSON(buf, marks)
	}
	return append(buf, '}')
}

func (n *node) json() []byte {
	var marks []mark
	return n.appendJSON(nil, &marks)
}

func appendString(buf []byte, s string) []byte {
	quoted, err := json.Marshal(s)
	if err != nil {
		return append(buf, `""`...) // a string always has a JSON form
	}
	return append(buf, quoted...)
}

// mark records where in a JSON text the value from pos begins.
type mark struct {
	offset int
	pos    pos
}

// find returns the position of the last value that begins at or before offset.
func find(marks []mark, offset int) pos {
	p := pos{1, 1}
	for _, m := range marks {
		if m.offset > offset {
			break
		}
		p = m.pos
	}
	return p
}

func fieldPath(path, name string) string {
	if !isPlainName(name, "_-") && (name == "" || strings.ContainsAny(name, `.[]"/ `) || strings.ContainsFunc(name, unicode.IsControl)) {
		name = strconv.Quote(name)
		return path + "[" + name + "]"
	}
	if path == "" {
		return name
	}
	return path + "." + name
}

func indexPath(path string, i int) string {
	return path + "[" + strconv.Itoa(i) + "]"
}
