package house

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// TestWords finds each phrase, and accepts a sentence that says the same without it.
func TestWords(t *testing.T) {
	for phrase, plain := range map[string]string{
		"It keeps those that apply.":                 "It keeps the policies that apply.",
		"It takes what of the object has no effect.": "It takes the fields without effect.",
		"The port is that of the service.":           "The port is the service's.",
		"Nobody reads it.":                           "No proxy reads it.",
		"Only the first of them counts.":             "Only the first of them is in force.",
		"The port counts for all hosts.":             "The port applies to all hosts.",
		"Refresh has every Gateway looked at.":       "Refresh reconciles every Gateway.",
		"It has not been asked.":                     "", // a passive
		"Likewise for Secrets.":                      "The same applies to Secrets.",
		"It is read anew.":                           "It is read again.",
		"Nil: there is no observer.":                 "Nil if no observer is set.",
		"It is small. Of pods only images are kept.": "It is small. Only the images of pods are kept.",
		"The object is not as it should be.":         "The object could not be reconciled.",
		"It is sent if the address is another.":      "It is sent if the address differs.",
		"It stays. What was written is removed.":     "It stays. The written files are removed.",
		"What is kept stays.":                        "Objects that are kept stay.",
	} {
		for text, want := range map[string]bool{phrase: plain != "", plain: false} {
			for file, content := range map[string]string{"docs/a.md": text + "\n", "api/a/a.go": "package a\n\n// " + text + "\nvar X int\n"} {
				if found := wordsIn(t, file, content, ""); (len(found) == 1) != want {
					t.Errorf("%s with %q: %v", file, text, found)
				}
			}
		}
	}
}

// wordsIn returns what checkWords finds in a file.
func wordsIn(t *testing.T, file, content, list string) []Violation {
	t.Helper()
	tree := fstest.MapFS{file: {Data: []byte(content)}, exceptionsFile: {Data: []byte(list)}}
	pkgs, err := parse(tree)
	must.Succeed(t, err)
	var found []Violation
	add := func(rule, at, format string, args ...any) {
		found = append(found, Violation{rule, at, fmt.Sprintf(format, args...)})
	}
	x, err := readExceptions(tree, add)
	must.Succeed(t, err)
	must.Succeed(t, checkWords(tree, pkgs, x, add))
	x.checkUsed(add)
	return found
}

// TestExceptions allows one line of one file, and reports an entry without such a line.
func TestExceptions(t *testing.T) {
	const list = "words | docs/a.md | Nobody reads | a quotation\n"
	for _, test := range []struct {
		file, content string
		rules         string
	}{
		{"docs/a.md", "Nobody reads it.\n", ""},
		{"docs/a.md", "Nobody reads it.\nNobody writes it.\n", "words"},
		{"docs/b.md", "Nobody reads it.\n", "words exceptions"},
	} {
		var rules []string
		for _, v := range wordsIn(t, test.file, test.content, list) {
			rules = append(rules, v.Rule)
		}
		if got := strings.Join(rules, " "); got != test.rules {
			t.Errorf("%s with %q breaks %q, want %q", test.file, test.content, got, test.rules)
		}
	}
}
