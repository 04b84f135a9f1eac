package yaml11

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	yaml "go.yaml.in/yaml/v3"
	sigsyaml "sigs.k8s.io/yaml"
)

// TestScalars compares values and names of fields with what kubectl reads.
func TestScalars(t *testing.T) {
	texts := strings.Fields(`
		yes Yes YES yEs no No NO on On ON oN off Off OFF y Y n N true True TRUE tRUE false False FALSE "yes" 'off' ~ null Null NULL nULL
		!!str~yes !!str~1 !!bool~yes !!bool~off !!bool~true !!int~7 !!float~7
		0 7 -7 +7 0777 00 08 0o7 0o17 -0o7 0O7 0x1F 0b11 -0b11 1_000 1__0 _1 1_ 0_7 1:30 190:20:30 12e3
		1e3 1E-3 1.0 1. .5 5. -.5 1.10 1_0.5 1e999 +1.5
		.inf -.inf +.inf .Inf .nan .NaN 9223372036854775807 9223372036854775808 18446744073709551615 18446744073709551616 123456789.123456789
		2001-01-01 2001-01-01T01:01:01Z 2001-1-1 << = a a~b -`)
	texts = append(texts, "", "|\n  yes\n", ">\n  no\n")
	for _, text := range texts {
		text = strings.ReplaceAll(text, "~", " ")
		if text == " " {
			text = "~"
		}
		document := "- " + text + "\n"
		var n yaml.Node
		if err := yaml.Unmarshal([]byte(document), &n); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if n.Content[0].Kind != yaml.SequenceNode || n.Content[0].Content[0].Kind != yaml.ScalarNode {
			continue
		}
		got := "an error"
		if v, err := Value(n.Content[0].Content[0]); err == nil {
			if text, err := json.Marshal([]any{v}); err == nil {
				got = string(text)
			}
		}
		want := "an error"
		if text, err := sigsyaml.YAMLToJSON([]byte(document)); err == nil {
			want = string(text)
		}
		if got != want {
			t.Errorf("%q is %s, for kubectl %s", text, got, want)
		}

		if text == "" || strings.Contains(text, "\n") || text == "<<" || text == "-" {
			continue
		}
		document = text + ": 1\n"
		if err := yaml.Unmarshal([]byte(document), &n); err != nil {
			t.Fatalf("%q: %v", document, err)
		}
		got = "an error"
		if name, ok := Key(n.Content[0].Content[0]); ok {
			got = fmt.Sprintf(`{%q:1}`, name)
		}
		want = "an error"
		if text, err := sigsyaml.YAMLToJSON([]byte(document)); err == nil {
			want = string(text)
		}
		if got != want {
			t.Errorf("the field %q is %s, for kubectl %s", text, got, want)
		}
	}
}
