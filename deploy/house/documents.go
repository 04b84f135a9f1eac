package house

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"unicode/utf8"
)

// documents are those that name tests. The first of them is the map of the tree.
func documents() []string { return []string{"ARCHITECTURE.md", "DECISIONS.md"} }

const (
	maxColumns     = 120 // of a line of a document or comment
	maxCodeColumns = 140 // of a line of code
)

// maxWideLines is how many lines of code may still be wider than maxCodeColumns. The number only gets smaller.
const maxWideLines = 2960

// checkDocuments holds that each test that a document names exists in the package that it names, that the map names
// each folder of pilot and only folders that exist, and that lines are wrapped.
func checkDocuments(tree fs.FS, pkgs []*pkg, add report) error {
	tests, err := testsOf(tree)
	if err != nil {
		return err
	}
	for _, name := range documents() {
		text, err := fs.ReadFile(tree, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return fmt.Errorf("read a document: %w", err)
		}
		checkDocument(name, string(text), tests, add)
		if name == documents()[0] {
			checkMap(name, string(text), tree, pkgs, add)
		}
	}
	return nil
}

// checkDocument checks the tests and the lines of one document. A test belongs to the package named in backquotes
// before it in the same paragraph or list item. Without one it belongs to the package in the heading of the section.
func checkDocument(name, text string, tests map[string]map[string]bool, add report) {
	tokens := regexp.MustCompile("`([a-z][a-z0-9/-]*)`|\\bTest[A-Z]\\w*")
	var section, dir string
	for i, line := range strings.Split(text, "\n") {
		at := fmt.Sprintf("%s:%d", name, i+1)
		heading := strings.HasPrefix(line, "#")
		if heading {
			section = ""
		}
		if heading || line == "" || strings.HasPrefix(line, "- ") {
			dir = section
		}
		for _, m := range tokens.FindAllStringSubmatch(line, -1) {
			switch {
			case m[1] != "" && tests[m[1]] != nil:
				dir = m[1]
				if heading {
					section = dir
				}
			case m[1] != "":
			case dir == "":
				add("tests", at, "%s is named without its package", m[0])
			case !tests[dir][m[0]]:
				add("tests", at, "%s has no %s", dir, m[0])
			}
		}
		if n := utf8.RuneCountInString(line); n > maxColumns {
			add("columns", at, "%d columns; a line has at most %d", n, maxColumns)
		}
	}
}

func checkMap(name, text string, tree fs.FS, pkgs []*pkg, add report) {
	named := map[string]bool{}
	for i, line := range strings.Split(text, "\n") {
		for _, m := range regexp.MustCompile("`((?:api|charts|cmd|deploy|galley|pilot|registry)/[a-z0-9/-]*)`").FindAllStringSubmatch(line, -1) {
			dir := strings.TrimSuffix(m[1], "/")
			if named[dir] = true; !isFolder(tree, dir) {
				add("folders", fmt.Sprintf("%s:%d", name, i+1), "there is no %s", dir)
			}
		}
	}
	for _, p := range pkgs {
		if dir := "pilot/" + second(p.dir); within(p.dir, dir) && !named[dir] && !named[p.dir] {
			add("folders", name, "%s is not named", dir)
		}
	}
}

// checkColumns holds that the lines of comments and of code are wrapped, in tests too. It reports no line of code while
// the tree has at most maxWide that are too wide, apart from the exceptions and generated files.
func checkColumns(tree fs.FS, maxWide int, x *exceptions, add report) error {
	comment, generated := regexp.MustCompile(`^\s*// `), regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)
	var wide []Violation
	err := walk(tree, ".go", func(name string) error {
		text, err := fs.ReadFile(tree, name)
		if generated.Match(text) {
			return err
		}
		for i, line := range strings.Split(string(text), "\n") {
			at, n := fmt.Sprintf("%s:%d", name, i+1), utf8.RuneCountInString(line)
			switch {
			case comment.MatchString(line):
				if n > maxColumns {
					add("columns", at, "%d columns; a line of a comment has at most %d", n, maxColumns)
				}
			case n > maxCodeColumns && !x.allows("columns", name, line):
				wide = append(wide, Violation{"columns", at, fmt.Sprintf(
					"%d columns; a line of code has at most %d: break it after a comma or an operator", n, maxCodeColumns)})
			}
		}
		return err
	})
	reportAbove(wide, maxWide, add)
	return err
}

func isFolder(tree fs.FS, name string) bool {
	info, err := fs.Stat(tree, name)
	return err == nil && info.IsDir()
}

// testsOf returns the tests of each folder that has any.
func testsOf(tree fs.FS) (map[string]map[string]bool, error) {
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	tests := map[string]map[string]bool{}
	err := walk(tree, ".go", func(name string) error {
		if !strings.HasSuffix(name, "_test.go") {
			return nil
		}
		text, err := fs.ReadFile(tree, name)
		for _, m := range declared.FindAllSubmatch(text, -1) {
			dir := path.Dir(name)
			if tests[dir] == nil {
				tests[dir] = map[string]bool{}
			}
			tests[dir][string(m[1])] = true
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the tests: %w", err)
	}
	return tests, nil
}
