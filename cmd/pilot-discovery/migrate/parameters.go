package migrate

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// mostOfParameter limits the index of a list in the name of a parameter.
const mostOfParameter = 1000

// step is one part of the name of a parameter: the key of a mapping, or the index of a list if the key is empty.
type step struct {
	key   string
	index int
}

// stepsOf returns the parts of a name as --set of Helm has it: dots separate keys, brackets enclose indexes, and a
// backslash keeps the character behind it.
func stepsOf(name string) (list []step, err error) {
	var key strings.Builder
	add := func() error {
		if key.Len() == 0 {
			return errors.New("a key is empty")
		}
		list = append(list, step{key: key.String()})
		key.Reset()
		return nil
	}
	afterIndex := false
	for i := 0; i < len(name); i++ {
		switch c := name[i]; {
		case c == '\\' && i+1 < len(name) && !afterIndex:
			i++
			key.WriteByte(name[i])
		case strings.IndexByte(`,={}\`, c) >= 0 || afterIndex && c != '.' && c != '[':
			return nil, fmt.Errorf("%q stands in the wrong place", c)
		case c == '.':
			if !afterIndex {
				if err := add(); err != nil {
					return nil, err
				}
			}
			afterIndex = false
		case c == '[':
			if !afterIndex {
				if err := add(); err != nil {
					return nil, err
				}
			}
			text, _, closed := strings.Cut(name[i+1:], "]")
			index, err := strconv.Atoi(text)
			if !closed || err != nil || index < 0 || index > mostOfParameter {
				return nil, fmt.Errorf("%q is not an index from 0 to %d", text, mostOfParameter)
			}
			list, afterIndex = append(list, step{index: index}), true
			i += len(text) + 1
		default:
			key.WriteByte(c)
		}
	}
	if !afterIndex {
		err = add()
	}
	return list, err
}

// setAt sets a value in a tree, in place of the value that the tree has. Lists become longer where they must.
func setAt(at *yaml.Node, steps []step, key, n *yaml.Node) error {
	first, rest := steps[0], steps[1:]
	child := n
	if len(rest) > 0 {
		child = &yaml.Node{Kind: yaml.MappingNode, Line: key.Line}
		if rest[0].key == "" {
			child.Kind = yaml.SequenceNode
		}
	}
	at.Style &^= yaml.FlowStyle
	index := first.index
	switch none := func() *yaml.Node {
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null", Line: key.Line}
	}; {
	case first.key == "" && at.Kind == yaml.SequenceNode:
		for len(at.Content) <= index {
			at.Content = append(at.Content, none())
		}
	case first.key != "" && at.Kind == yaml.MappingNode:
		for index = 0; index < len(at.Content) && at.Content[index].Value != first.key; {
			index += 2
		}
		name := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: first.key, Line: key.Line}
		if index == len(at.Content) {
			at.Content = append(at.Content, name, none())
		} else if len(rest) == 0 {
			at.Content[index] = name
		}
		index++
	default:
		return fmt.Errorf("line %d has a value of another kind there", at.Line)
	}
	if len(rest) == 0 || at.Content[index].ShortTag() == "!!null" {
		at.Content[index] = child
	}
	if len(rest) == 0 {
		return nil
	}
	return setAt(at.Content[index], rest, key, n)
}

// typed returns the node for a text of --set, in which integers, true, false and null are no strings, and braces
// enclose a list.
func typed(text string, line int) *yaml.Node {
	if inner, ok := strings.CutPrefix(text, "{"); ok && strings.HasSuffix(inner, "}") {
		list := &yaml.Node{Kind: yaml.SequenceNode, Line: line}
		for _, x := range unescaped(strings.TrimSuffix(inner, "}"), ',') {
			if x = strings.TrimSpace(x); x != "" {
				list.Content = append(list.Content, typedScalar(x, line))
			}
		}
		return list
	}
	return typedScalar(unescaped(text, 0)[0], line)
}

func typedScalar(text string, line int) *yaml.Node {
	_, err := strconv.ParseInt(text, 10, 64)
	lower := strings.ToLower(text)
	switch {
	case text == "0" || err == nil && text[0] != '0':
		return &yaml.Node{Kind: yaml.ScalarNode, Value: text, Line: line}
	case lower == "true" || lower == "false" || lower == "null":
		return &yaml.Node{Kind: yaml.ScalarNode, Value: lower, Line: line}
	}
	return quoted(text, line)
}

// quoted returns the node for a string.
func quoted(text string, line int) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Style: yaml.DoubleQuotedStyle, Value: text, Line: line}
}

// unescaped returns the parts of a text between separators, without the backslashes that keep the characters behind
// them. The separator 0 means that the text has one part.
func unescaped(text string, separator byte) []string {
	parts := []string{""}
	for i := 0; i < len(text); i++ {
		last := &parts[len(parts)-1]
		switch c := text[i]; {
		case c == '\\' && i+1 < len(text):
			i++
			*last += text[i : i+1]
		case c == separator && separator != 0:
			parts = append(parts, "")
		default:
			*last += text[i : i+1]
		}
	}
	return parts
}
