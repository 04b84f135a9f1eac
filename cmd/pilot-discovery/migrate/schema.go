package migrate

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/yaml11"
	"github.com/istiod-lite/istiod-lite/charts"
)

// valueSchema is a JSON Schema, as far as the charts use it.
type valueSchema struct {
	Ref         string                  `json:"$ref"`
	Types       words                   `json:"type"`
	Enum        []any                   `json:"enum"`
	Pattern     string                  `json:"pattern"`
	Minimum     *float64                `json:"minimum"`
	Maximum     *float64                `json:"maximum"`
	Properties  map[string]*valueSchema `json:"properties"`
	Additional  *additional             `json:"additionalProperties"`
	Items       *valueSchema            `json:"items"`
	Definitions map[string]*valueSchema `json:"definitions"`

	root *valueSchema
}

// words is a list of strings, which may be written as one string.
type words []string

// UnmarshalJSON reads one string or a list.
func (w *words) UnmarshalJSON(text []byte) error {
	var one string
	if json.Unmarshal(text, &one) == nil {
		*w = words{one}
		return nil
	}
	return json.Unmarshal(text, (*[]string)(w))
}

// additional says whether an object may have other properties, and their schema.
type additional struct {
	refused bool
	schema  *valueSchema
}

// UnmarshalJSON reads a boolean or a schema.
func (a *additional) UnmarshalJSON(text []byte) error {
	var allowed bool
	if json.Unmarshal(text, &allowed) == nil {
		a.refused = !allowed
		return nil
	}
	return json.Unmarshal(text, &a.schema)
}

// schemaOf returns the schema of the values of a chart of this tree.
func schemaOf(chart string) (*valueSchema, error) {
	text, err := charts.Schemas.ReadFile(chart + "/values.schema.json")
	if err != nil {
		return nil, err
	}
	s := &valueSchema{}
	if err := json.Unmarshal(text, s); err != nil {
		return nil, fmt.Errorf("schema of the chart %s: %w", chart, err)
	}
	s.root = s
	return s, nil
}

// resolved returns the schema to which s refers, or s.
func (s *valueSchema) resolved() *valueSchema {
	name, ofDefinitions := strings.CutPrefix(s.Ref, "#/definitions/")
	switch {
	case s.Ref == "#":
		return s.root
	case ofDefinitions:
		return s.root.below(s.root.Definitions[name])
	}
	return s
}

func (s *valueSchema) below(child *valueSchema) *valueSchema {
	if child == nil {
		return nil
	}
	child.root = s.root
	return child.resolved()
}

// property returns the schema of a property. It is nil if the schema says nothing about it, and ok is false if the
// object must not have it.
func (s *valueSchema) property(name string) (child *valueSchema, ok bool) {
	if s == nil {
		return nil, true
	}
	if child := s.below(s.Properties[name]); child != nil {
		return child, true
	}
	if s.Additional == nil {
		return nil, true
	}
	return s.below(s.Additional.schema), !s.Additional.refused
}

// names returns the names of the properties, sorted.
func (s *valueSchema) names() []string { return slices.Sorted(maps.Keys(s.Properties)) }

// wrong returns what is wrong with a value, without its properties and elements, or "". Helm takes null as no value.
func (s *valueSchema) wrong(n *yaml.Node) string {
	if s == nil {
		return ""
	}
	kind, value := "object", any(nil)
	switch n.Kind {
	case yaml.SequenceNode:
		kind = "array"
	case yaml.ScalarNode:
		v, err := yaml11.Value(n)
		if err != nil {
			return err.Error()
		}
		value = v
		switch v := v.(type) {
		case nil:
			return ""
		case bool:
			kind = "boolean"
		case string:
			kind = "string"
		case float64:
			kind = "number"
			if v == float64(int64(v)) {
				kind = "integer"
			}
		default:
			kind = "integer"
		}
	}
	fits := func(t string) bool { return t == kind || t == "number" && kind == "integer" }
	if len(s.Types) > 0 && !slices.ContainsFunc(s.Types, fits) {
		types := slices.DeleteFunc(slices.Clone(s.Types), func(t string) bool { return t == "null" })
		return fmt.Sprintf("it is of type %s: write one of type %s", kind, strings.Join(types, " or "))
	}
	if s.Enum != nil && !slices.Contains(s.Enum, value) {
		var known []string
		for _, x := range s.Enum {
			if text, ok := x.(string); ok && text != "" {
				known = append(known, text)
			}
		}
		return fmt.Sprintf("%q is not known%s", n.Value, diag.NearNames(n.Value, known))
	}
	if text, ok := value.(string); ok && s.Pattern != "" {
		re, err := regexp.Compile(s.Pattern) //nolint:forbidigo // the patterns are the charts' own
		if err == nil && !re.MatchString(text) {
			return fmt.Sprintf("%q does not match %s", text, s.Pattern)
		}
	}
	var number float64
	if kind == "integer" || kind == "number" {
		if err := n.Decode(&number); err != nil {
			return err.Error()
		}
		if s.Minimum != nil && number < *s.Minimum || s.Maximum != nil && number > *s.Maximum {
			return n.Value + " is out of range"
		}
	}
	return ""
}
