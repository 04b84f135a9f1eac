package terminal

import "testing"

// Characters that a terminal interprets, or does not show, become spaces. Other text stays as it is.
func TestPlain(t *testing.T) {
	for text, want := range map[string][2]string{
		"web-1.a":                          {"web-1.a", "web-1.a"},
		"übergroß → 日本 👍":                  {"übergroß → 日本 👍", "übergroß → 日本 👍"},
		"a\x1b[31mb\x1b]0;title\x07":       {"a [31mb ]0;title ", "a [31mb ]0;title "},
		"one\ntwo\tthree\r":                {"one two three ", "one\ntwo\tthree "},
		"\u009b31m\x7f\x00":                {" 31m  ", " 31m  "},
		"a\x9b31m":                         {"a\ufffd31m", "a\ufffd31m"}, // not UTF-8
		"\u202eedoc\u202c\u2066\u200f":     {" edoc   ", " edoc   "},
		"a\u200bb\ufeffc\u00add\U000e0041": {"a b c d ", "a b c d "},
		"a\u2028b\u2029c":                  {"a b c", "a b c"},
	} {
		if got := [2]string{Plain(text), Lines(text)}; got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
