package compat

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/binaries"
)

// Update is the environment variable that makes Check write the section instead of comparing it: COMPAT_UPDATE=1.
const Update = "COMPAT_UPDATE"

// Table is one section.
type Table struct {
	Title string
	About string // a paragraph before the rows
	Head  []string
	Rows  [][]string
}

// String returns the section as Markdown.
func (t Table) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "## %s\n\n", t.Title)
	if t.About != "" {
		b.WriteString(t.About + "\n\n")
	}
	for _, line := range t.lines() {
		b.WriteString(line + "\n")
	}
	return b.String()
}

// lines returns the lines of the table: two of the head, and one for each row.
func (t Table) lines() []string {
	line := func(cells []string) string {
		var b strings.Builder
		for _, c := range cells {
			b.WriteString("| " + strings.ReplaceAll(c, "|", `\|`) + " ")
		}
		return b.String() + "|"
	}
	all := []string{line(t.Head), strings.Repeat("|---", len(t.Head)) + "|"}
	for _, r := range t.Rows {
		all = append(all, line(r))
	}
	return all
}

const head = `# What was tried with other tools

Made by ` + "`make compat`" + `, with the tools of Istio 1.31, and by ` + "`make integrations RUN=all`" + `. With COMPAT_UPDATE=1 they write
it again.

`

// Check returns an error if MATRIX.md differs from the section. With Update it writes the section instead.
func Check(t Table) error { return check(t, replace) }

// check compares MATRIX.md with what a function makes of it and of a section, or writes that.
func check(t Table, replace func(text string, t Table) string) error {
	root, err := binaries.ModuleRoot()
	if err != nil {
		return err
	}
	path := filepath.Join(root, "deploy", "compat", "MATRIX.md")
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if !utf8.Valid(text) {
		return fmt.Errorf("%s is no text", path)
	}
	next := replace(string(text), t)
	switch {
	case next == string(text):
		return nil
	case os.Getenv(Update) == "":
		return fmt.Errorf("%s does not say what is so now: %s=1 writes it\n%s", path, Update, t)
	}
	return os.WriteFile(path, []byte(next), 0o644)
}

// replace returns the document with the section replaced, or added at the end.
func replace(text string, t Table) string {
	return replaceSection(text, t.Title, strings.TrimPrefix(t.String(), "## "+t.Title+"\n\n"))
}

// replaceSection returns the document with the content of a section replaced, or with the section added at the end.
func replaceSection(text, title, content string) string {
	if text == "" {
		text = head
	}
	sections := strings.Split(text, "\n## ")
	section := title + "\n\n" + content
	for i, s := range sections[1:] {
		if strings.HasPrefix(s, title+"\n") {
			sections[i+1] = section
			return strings.Join(sections, "\n## ")
		}
	}
	return strings.TrimRight(text, "\n") + "\n\n## " + section
}
