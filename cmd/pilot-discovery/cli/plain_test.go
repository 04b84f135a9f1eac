package cli

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// The strings in JSON become plain for people and stay as they are for programs. Text that is no JSON is an error.
func TestDecode(t *testing.T) {
	for text, want := range map[string]any{
		`{"a": "b", "n": 1.5, "t": true, "z": null}`:             map[string]any{"a": "b", "n": 1.5, "t": true, "z": nil},
		`["\u001b[31mred", "one\ntwo\tthree"]`:                   []any{" [31mred", "one two three"},
		`{"a\nb": {"c\u202e": ["\\\"\n"]}}`:                      map[string]any{"a b": map[string]any{"c ": []any{`\" `}}},
		"[\"a\u202eb\", \"\\udb40\\udc41\", \"<&>\", \"<\\n>\"]": []any{"a b", " ", "<&>", "< >"},
		`"\\n is no line break"`:                                 `\n is no line break`,
		`"日本 \ud83d\udc4d"`:                                      "日本 👍",
		" [ ] ":                                                  []any{},
	} {
		var got, raw, same any
		if err := Decode([]byte(text), "table", &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, %#v, want %#v", text, err, got, want)
		}
		err := Decode([]byte(text), "json", &raw)
		if _ = json.Unmarshal([]byte(text), &same); err != nil || !reflect.DeepEqual(raw, same) {
			t.Errorf("%s for programs: %v, %#v", text, err, raw)
		}
	}
	for _, text := range []string{``, `"`, `"\`, `{"a": "b`, "[\"a\x1bb\"]", `["\x"]`, `<html lang="en">`, `"a" "b"`} {
		var v any
		if err := Decode([]byte(text), "table", &v); err == nil || !strings.HasPrefix(err.Error(), "failed to read the answer: ") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// Values that are invisible, or that have characters which a terminal would interpret, are quoted.
func TestQuoted(t *testing.T) {
	for value, want := range map[string]string{
		"web-1.a": "web-1.a", "": `""`, "a b": `"a b"`, "a\tb\n": `"a\tb\n"`, "\x1b[31m": `"\x1b[31m"`, "a\u202eb": `"a\u202eb"`,
	} {
		if got := Quoted(value); got != want {
			t.Errorf("%q: %s, want %s", value, got, want)
		}
	}
}
