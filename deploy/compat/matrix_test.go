package compat

import "testing"

// A new section is added at the end. Later it replaces the section with its name.
func TestReplace(t *testing.T) {
	one, two := Table{Title: "One", Head: []string{"a"}, Rows: [][]string{{"1|2"}}}, Table{Title: "Two", About: "About.", Head: []string{"b"}}
	text := replace(replace("", one), two)
	want := head + "## One\n\n| a |\n|---|\n| 1\\|2 |\n\n## Two\n\nAbout.\n\n| b |\n|---|\n"
	if text != want {
		t.Errorf("%q", text)
	}
	if replace(text, one) != text || replace(text, two) != text {
		t.Error("a section that is there is there once more")
	}
	one.Rows = [][]string{{"3"}}
	if got := replace(text, one); got != head+"## One\n\n| a |\n|---|\n| 3 |\n\n## Two\n\nAbout.\n\n| b |\n|---|\n" {
		t.Errorf("%q", got)
	}
}
