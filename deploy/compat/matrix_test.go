package compat

import (
	"path/filepath"
	"strings"
	"testing"
)

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

// A row replaces the row with its first cell, or is added in order. The text before the rows and other sections stay.
func TestReplaceRow(t *testing.T) {
	row := func(cells ...string) Table {
		return Table{Title: "Two", Head: []string{"a", "b"}, Rows: [][]string{cells}}
	}
	before := head + "## One\n\n| a | b |\n|---|---|\n| c | 1 |\n\n"
	after := "\n## Three\n\n| a | b |\n|---|---|\n| c | 1 |\n"
	two := "## Two\n\nAbout.\n\n| a | b |\n|---|---|\n"
	text := before + two + "| B | 1 |\n" + after
	for _, c := range []struct {
		add  Table
		want string
	}{
		{row("c|d", "1"), two + "| B | 1 |\n| c\\|d | 1 |\n"},
		{row("a", "1"), two + "| a | 1 |\n| B | 1 |\n| c\\|d | 1 |\n"},
		{row("c|d", "2"), two + "| a | 1 |\n| B | 1 |\n| c\\|d | 2 |\n"},
		{row("B", "1"), two + "| a | 1 |\n| B | 1 |\n| c\\|d | 2 |\n"},
	} {
		if text = replaceRow(text, c.add); text != before+c.want+after {
			t.Errorf("%v:\n%s", c.add.Rows, text)
		}
	}
	if got := replaceRow("", row("a", "1")); got != head+"## Two\n\n| a | b |\n|---|---|\n| a | 1 |\n" {
		t.Errorf("%q", got)
	}
}

// Rows that a test adds to a file are checked later, each of them.
func TestRowsOfAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rows")
	if err := CheckRows(path); err != nil {
		t.Errorf("without rows: %v", err)
	}
	t.Setenv(RowsVar, path)
	for _, tool := range []string{"none", "Argo Rollouts"} {
		if err := CheckProject(tool, "v0", "how", "result"); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv(Update, "")
	err := CheckRows(path)
	for _, row := range []string{"| none | v0 | how | result |", "| Argo Rollouts | v0 | how | result |"} {
		if err == nil || !strings.Contains(err.Error(), row) {
			t.Errorf("the row %s is not in %v", row, err)
		}
	}
}
