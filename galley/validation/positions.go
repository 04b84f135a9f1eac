package validation

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"

	yaml "go.yaml.in/yaml/v3"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/yaml11"
)

// Positions finds the positions of objects' fields in the text of a file, for findings that were made from the objects.
type Positions struct {
	lines   [][]byte
	home    string                // namespace of objects that name none
	objects map[string]*yaml.Node // keyed by the result of Key.String
}

// NewPositions reads a file. It returns empty Positions for text that is not YAML.
func NewPositions(data []byte) *Positions { return NewPositionsIn(data, metav1.NamespaceDefault) }

// NewPositionsIn reads a file whose objects are in a namespace unless they name another.
func NewPositionsIn(data []byte, namespace string) *Positions {
	p := &Positions{home: namespace, lines: bytes.Split(data, []byte{'\n'}), objects: map[string]*yaml.Node{}}
	docs := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var doc yaml.Node
		if err := docs.Decode(&doc); err != nil {
			if !errors.Is(err, io.EOF) {
				p.objects = nil
			}
			return p
		}
		for _, root := range doc.Content {
			p.add(root)
		}
	}
}

func (p *Positions) add(n *yaml.Node) {
	if items := entry(n, "items"); items != nil && scalar(n, "kind") == "List" {
		for _, item := range items.Content {
			p.add(item)
		}
		return
	}
	kind := kinds.Find(scalar(n, "apiVersion"), scalar(n, "kind"))
	if kind == nil {
		return
	}
	key := kinds.Key{Kind: kind, Name: scalar(n, "metadata", "name"), Namespace: scalar(n, "metadata", "namespace")}
	switch {
	case kind.Cluster:
		key.Namespace = ""
	case key.Namespace == "":
		key.Namespace = p.home
	}
	if name := key.String(); p.objects[name] == nil { // of two objects with one key, the first is used
		p.objects[name] = n
	}
}

// Of returns where a field of an object is written; both have their names in Diagnostic. If it is not written, Of
// returns the position of the enclosing value. It reports whether the object exists.
func (p *Positions) Of(object, field string) (line, column int, ok bool) {
	n := p.find(object, field)
	if n == nil {
		return 0, 0, false
	}
	return n.Line, n.Column, true
}

// Within returns the position in the file of a line and column of the text in a field. It reports whether the field
// keeps the lines of the text, as a block scalar with | does.
func (p *Positions) Within(object, field string, line, column int) (inLine, inColumn int, ok bool) {
	n := p.find(object, field)
	if n == nil || n.Style&yaml.LiteralStyle == 0 || line < 1 {
		return 0, 0, false
	}
	for _, text := range p.lines[min(n.Line, len(p.lines)):] {
		if rest := bytes.TrimLeft(text, " "); len(bytes.TrimSpace(rest)) > 0 {
			return n.Line + line, len(text) - len(rest) + column, true
		}
	}
	return 0, 0, false
}

// find follows a path such as spec.http[0].match["a.b"].
func (p *Positions) find(object, field string) *yaml.Node {
	n := p.objects[object]
	for field != "" && n != nil {
		var next *yaml.Node
		switch {
		case strings.HasPrefix(field, `["`):
			quoted, err := strconv.QuotedPrefix(field[1:])
			if err != nil {
				return n
			}
			name, _ := strconv.Unquote(quoted)
			next, field = entry(n, name), strings.TrimPrefix(field[1+len(quoted):], "]")
		case field[0] == '[':
			index, rest, _ := strings.Cut(field[1:], "]")
			if i, err := strconv.Atoi(index); err == nil && i >= 0 && n.Kind == yaml.SequenceNode && i < len(n.Content) {
				next = n.Content[i]
			}
			field = rest
		default:
			end := strings.IndexAny(field, ".[")
			if end < 0 {
				end = len(field)
			}
			next, field = entry(n, field[:end]), field[end:]
		}
		if next == nil {
			return n
		}
		n, field = next, strings.TrimPrefix(field, ".")
	}
	return n
}

// entry returns the value of a mapping's field, or nil.
func entry(n *yaml.Node, name string) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if key, ok := yaml11.Key(n.Content[i]); ok && key == name {
			return n.Content[i+1]
		}
	}
	return nil
}

func scalar(n *yaml.Node, path ...string) string {
	for _, name := range path {
		if n = entry(n, name); n == nil {
			return ""
		}
	}
	return n.Value
}
