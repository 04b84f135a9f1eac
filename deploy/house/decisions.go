package house

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// theIndex lists the decisions, each of which is a file in theDecisions.
const (
	theIndex     = "DECISIONS.md"
	theDecisions = "docs/decisions"
)

const maxDecision = 60 // lines of a decision: a page

// checkDecisions holds that each decision has a number of its own, a status and the five sections, fits on a page, and
// is in the index under its title and with its status. That its links lead somewhere is the rule of all documents.
func checkDecisions(tree fs.FS, add report) error {
	var (
		file   = regexp.MustCompile(`^(\d{4})-[a-z0-9-]+\.md$`)
		status = regexp.MustCompile(`(?m)^Status: (accepted|superseded by \[\d{4}\]\((\d{4}-[a-z0-9-]+\.md)\))$`)
		heads  = regexp.MustCompile(`(?m)^## (.*)$`)
	)
	index, _ := fs.ReadFile(tree, theIndex) // a tree without an index lists no decision
	numbers := map[string]string{}
	return walk(tree, ".md", func(name string) error {
		if path.Dir(name) != theDecisions {
			return nil
		}
		text, err := fs.ReadFile(tree, name)
		number := file.FindStringSubmatch(path.Base(name))
		if number == nil {
			add("decisions", name, "the name of a decision is NNNN-title.md")
			return err
		}
		if other := numbers[number[1]]; other != "" {
			add("decisions", name, "%s has the same number", other)
		}
		numbers[number[1]] = name
		is := status.FindStringSubmatch(string(text))
		if is == nil {
			add("decisions", name, "no status: write \"Status: accepted\", or \"Status: superseded by [NNNN](NNNN-title.md)\"")
		}
		var sections []string
		for _, m := range heads.FindAllStringSubmatch(string(text), -1) {
			sections = append(sections, m[1])
		}
		if want := []string{"Context", "Decision", "Consequences", "Test"}; !slices.Equal(sections, want) {
			add("decisions", name, "the sections are %q; a decision has %q", sections, want)
		}
		if n := strings.Count(string(text), "\n"); n > maxDecision {
			add("decisions", name, "%d lines; a decision has at most %d", n, maxDecision)
		}
		title, _, _ := strings.Cut(strings.TrimPrefix(string(text), "# "), "\n")
		line := fmt.Sprintf("- [%s](%s) %s", number[1], name, title)
		if is != nil && is[2] != "" {
			line += ", superseded by " + is[2][:4]
		}
		if n := utf8.RuneCountInString(line); n > maxColumns {
			add("decisions", name, "its line in %s has %d columns; a line has at most %d: shorten the name of the file", theIndex, n, maxColumns)
		}
		if !strings.Contains("\n"+string(index), "\n"+line+"\n") {
			add("decisions", name, "%s has no line %q", theIndex, line)
		}
		return err
	})
}
