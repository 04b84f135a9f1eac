package migrate

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/yaml11"
)

// mostOfValues limits the values of one file, with the values that aliases repeat.
const mostOfValues = 50_000

// checkText returns an error if a text is too large to be parsed.
func checkText(file string, text []byte) error {
	if most := limits.Default().FileSize; int64(len(text)) > most {
		return fmt.Errorf("%s: it has more than %d bytes", file, most)
	}
	all := 0
	for line, n := range limits.YAMLNodes(text) {
		if all += n; all > 2*mostOfValues { // the count before parsing is an upper bound
			return fmt.Errorf("%s:%d: the file has more than %d values", file, line, mostOfValues)
		}
	}
	return nil
}

// checkTree subtracts the nodes of a tree from how many a file may have, with the nodes that aliases repeat. It returns
// an error if there are more, or if an alias is part of what it stands for.
func checkTree(file string, n *yaml.Node, left *int) error {
	return checkNode(file, n, left, nil)
}

// checkNode is checkTree of one node. The open anchors are the anchors of the nodes that it is part of.
func checkNode(file string, n *yaml.Node, left *int, open []*yaml.Node) error {
	if *left--; *left < 0 {
		return fmt.Errorf("%s:%d: the file has more than %d values, with the values that aliases repeat", file, n.Line, mostOfValues)
	}
	if n.Alias != nil {
		if slices.Contains(open, n.Alias) {
			return fmt.Errorf("%s:%d: anchor %s contains itself", file, n.Line, n.Value)
		}
		return checkNode(file, n.Alias, left, open)
	}
	if n.Anchor != "" {
		open = append(open, n)
	}
	for _, child := range n.Content {
		if err := checkNode(file, child, left, open); err != nil {
			return err
		}
	}
	return nil
}

// resolved returns a copy of a tree in which aliases and merge keys are replaced by what they stand for.
func resolved(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	out := *n
	out.Anchor, out.Content = "", nil
	if n.Kind != yaml.MappingNode {
		for _, child := range n.Content {
			out.Content = append(out.Content, resolved(child))
		}
		return &out
	}
	var merged []*yaml.Node
	each(n, func(key, value *yaml.Node) {
		switch value = resolved(value); {
		case key.ShortTag() != "!!merge":
			out.Content = append(out.Content, resolved(key), value)
		case value.Kind == yaml.SequenceNode:
			merged = append(merged, value.Content...)
		default:
			merged = append(merged, value)
		}
	})
	for _, from := range merged {
		each(from, func(key, value *yaml.Node) {
			if get(&out, key.Value) == nil {
				out.Content = append(out.Content, key, value)
			}
		})
	}
	return &out
}

// fill adds the values of a mapping to another one, and returns their paths. The values that the other mapping has
// stay, but null is no value.
func fill(to, from *yaml.Node) (added []string) {
	each(from, func(key, n *yaml.Node) { added = append(added, put(to, key, n)...) })
	return added
}

// put adds one value to a mapping, as fill does.
func put(to, key, n *yaml.Node) (added []string) {
	if to.Kind != yaml.MappingNode {
		return nil // the chart refuses what the value stands in place of a mapping
	}
	at := 0
	for at < len(to.Content) && to.Content[at].Value != key.Value {
		at += 2
	}
	if at == len(to.Content) {
		to.Content = append(to.Content, key, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null"})
		to.Style &^= yaml.FlowStyle // which would make one long line
	}
	absent := to.Content[at+1].ShortTag() == "!!null"
	if n.Kind == yaml.MappingNode && len(n.Content) > 0 {
		if absent {
			to.Content[at], to.Content[at+1] = key, mapping(n)
		}
		for _, below := range fill(to.Content[at+1], n) {
			added = append(added, key.Value+"."+below)
		}
		return added
	}
	if absent {
		to.Content[at], to.Content[at+1] = key, n
		added = []string{key.Value}
	}
	return added
}

// difference returns a mapping without the values that another mapping sets. The other mapping may be nil.
func difference(n, set *yaml.Node) *yaml.Node {
	rest := mapping(n)
	each(n, func(key, value *yaml.Node) {
		switch other := get(set, key.Value); {
		case other == nil || other.ShortTag() == "!!null":
		case value.Kind == yaml.MappingNode && other.Kind == yaml.MappingNode:
			if value = difference(value, other); len(value.Content) == 0 {
				return
			}
		default:
			return
		}
		rest.Content = append(rest.Content, key, value)
	})
	return rest
}

// putAt adds a value to a mapping at a path of names, as fill does. The line and the comments are those of a key.
func putAt(to *yaml.Node, path string, key, n *yaml.Node) (added []string) {
	names := strings.Split(path, ".")
	last := &yaml.Node{Kind: yaml.ScalarNode, Value: names[len(names)-1], Line: key.Line, HeadComment: key.HeadComment,
		LineComment: key.LineComment}
	for _, name := range slices.Backward(names[:len(names)-1]) {
		n = &yaml.Node{Kind: yaml.MappingNode, Line: key.Line, Content: []*yaml.Node{last, n}}
		last = &yaml.Node{Kind: yaml.ScalarNode, Value: name, Line: key.Line}
	}
	return put(to, last, n)
}

// mapping returns an empty mapping with the line of a node, if there is one.
func mapping(at *yaml.Node) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	if at != nil {
		n.Line = at.Line
	}
	return n
}

// withLine sets the line of all nodes of a tree.
func withLine(n *yaml.Node, line int) *yaml.Node {
	n.Line = line
	for _, child := range n.Content {
		withLine(child, line)
	}
	return n
}

// remove removes a key of a mapping.
func remove(n *yaml.Node, key string) {
	if n == nil || n.Kind != yaml.MappingNode {
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			n.Content = slices.Delete(n.Content, i, i+2)
			return
		}
	}
}

// removeAt removes the key at a path of names, and the mappings that lose all of their keys.
func removeAt(n *yaml.Node, path string) {
	name, rest, below := strings.Cut(path, ".")
	if !below {
		remove(n, name)
		return
	}
	if child := get(n, name); child != nil {
		if removeAt(child, rest); len(child.Content) == 0 {
			remove(n, name)
		}
	}
}

// plain makes a tree that was written as JSON look like YAML.
func plain(n *yaml.Node) {
	n.Style = 0
	for _, child := range n.Content {
		plain(child)
	}
}

// each calls f with the keys and the values of a mapping.
func each(n *yaml.Node, f func(key, value *yaml.Node)) {
	if n == nil || n.Kind != yaml.MappingNode {
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		f(n.Content[i], n.Content[i+1])
	}
}

// get returns the value of a key of a mapping, or nil.
func get(n *yaml.Node, path ...string) *yaml.Node {
	for _, name := range path {
		var next *yaml.Node
		each(n, func(key, value *yaml.Node) {
			if key.Value == name {
				next = value
			}
		})
		n = next
	}
	return n
}

// scalar returns the text of a key of a mapping, or "".
func scalar(n *yaml.Node, path ...string) string {
	if n = get(n, path...); n != nil && n.Kind == yaml.ScalarNode {
		return n.Value
	}
	return ""
}

// elements returns the elements of the list at a key of a mapping.
func elements(n *yaml.Node, key string) []*yaml.Node {
	if n = get(n, key); n != nil && n.Kind == yaml.SequenceNode {
		return n.Content
	}
	return nil
}

// on reports whether a part is enabled. otherwise is for a part that does not say it.
func on(n *yaml.Node, otherwise bool) bool {
	if n = get(n, "enabled"); n != nil {
		if value, ok := yaml11.Bool(n); ok {
			return value
		}
	}
	return otherwise
}
