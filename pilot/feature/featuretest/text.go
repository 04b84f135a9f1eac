package featuretest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// columns is the maximum length of a line with more than one value.
const columns = 110

// TB is the part of *testing.T and *rapid.T that is needed.
type TB interface {
	Helper()
	Fatal(...any)
}

// Any decodes the Any of a resource.
func Any(t TB, r *envoy.Resource) *anypb.Any {
	t.Helper()
	a := &anypb.Any{}
	if err := proto.Unmarshal(r.Bytes(), a); err != nil {
		t.Fatal(err)
	}
	return a
}

// Message returns the message of a resource.
func Message(t TB, r *envoy.Resource) proto.Message {
	t.Helper()
	m, err := Any(t, r).UnmarshalNew()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// lenient resolves types that this program does not link as empty messages.
type lenient struct{ *protoregistry.Types }

func (l lenient) FindMessageByURL(url string) (protoreflect.MessageType, error) {
	if t, err := l.Types.FindMessageByURL(url); err == nil {
		return t, nil
	}
	return (&emptypb.Empty{}).ProtoReflect().Type(), nil
}

// Value returns a message as maps, lists, and scalars; numbers are a json.Number.
func Value(t TB, m proto.Message) any {
	t.Helper()
	b, err := protojson.MarshalOptions{Resolver: lenient{protoregistry.GlobalTypes}}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// block returns a value as lines. A list or map in one line has at most that many columns.
func block(v any, columns int) (lines []string) {
	s := flow(v)
	switch v := v.(type) {
	case map[string]any:
		if len(s) > columns {
			for _, k := range keys(v) {
				lines = append(lines, entry(k, v[k], columns)...)
			}
			return lines
		}
	case []any:
		if len(s) > columns {
			for _, e := range v {
				lines = append(lines, item(e, columns)...)
			}
			return lines
		}
	}
	return []string{s}
}

// entry returns an entry of a map as lines.
func entry(key string, v any, columns int) []string {
	lines := block(v, columns-2)
	if len(lines) == 1 && len(key+": "+lines[0]) <= columns || isScalar(v) {
		return []string{key + ": " + lines[0]}
	}
	for i, l := range lines {
		lines[i] = "  " + l
	}
	return append([]string{key + ":"}, lines...)
}

// item returns an item of a list as lines.
func item(v any, columns int) []string {
	lines := block(v, columns-2)
	for i, l := range lines {
		lines[i] = "  " + l
	}
	lines[0] = "- " + lines[0][2:]
	return lines
}

// flow returns a value in one line.
func flow(v any) string {
	var parts []string
	switch v := v.(type) {
	case map[string]any:
		for _, k := range keys(v) {
			parts = append(parts, k+": "+flow(v[k]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case []any:
		for _, e := range v {
			parts = append(parts, flow(e))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case string:
		v = strings.TrimPrefix(v, "type.googleapis.com/")
		if plain.MatchString(v) && !other.MatchString(v) {
			return v
		}
		return strconv.Quote(v)
	}
	return fmt.Sprint(v)
}

// plain matches text that is written without quotes.
var plain = regexp.MustCompile(`^[A-Za-z0-9./*_|@:+~%-]+$`)

// other matches text that looks like a value of another type.
var other = regexp.MustCompile(`^(true|false|[0-9]+(\.[0-9]+)?)$`)

func isScalar(v any) bool {
	switch v.(type) {
	case map[string]any, []any:
		return false
	}
	return true
}

// keys returns the keys of a map in order, names first.
func keys(m map[string]any) []string {
	rank := func(k string) int { return slices.Index([]string{"name", "@type"}, k) }
	return slices.SortedFunc(maps.Keys(m), func(a, b string) int { return cmp.Or(rank(b)-rank(a), strings.Compare(a, b)) })
}
