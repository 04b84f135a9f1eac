package house

import (
	"cmp"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// theMap is the document that names each folder. It has no names of tests and is short, so that it is read whole.
const theMap = "ARCHITECTURE.md"

const (
	maxMap         = 250 // lines of theMap
	maxColumns     = 120 // of a line of a document or comment
	maxCodeColumns = 140 // of a line of code
)

// named matches a word in backquotes, which may be a folder, and the name of a test, with its folder in folder.TestX.
var named = regexp.MustCompile("`([a-z][a-z0-9/-]*)`|\\b(?:([a-z0-9/-]+)\\.)?((?:Test|Fuzz)[A-Z]\\w*)")

// checkDocuments checks that the tests that documents name exist, that the map names all folders and only folders that
// exist, and that lines are wrapped.
func checkDocuments(tree fs.FS, pkgs []*pkg, tests map[string]map[string]bool, add report) error {
	return walk(tree, ".md", func(name string) error {
		if within(name, "api") || within(name, "docs/reference") {
			return nil
		}
		text, err := fs.ReadFile(tree, name)
		if err != nil {
			return fmt.Errorf("read a document: %w", err)
		}
		checkDocument(name, string(text), tests, add)
		switch name {
		case theMap:
			checkMap(name, string(text), tree, pkgs, add)
		case promises:
			checkPromises(string(text), add)
		}
		return nil
	})
}

// promises is the document whose section below promised has a table of promises, with the tests of each.
const promises, promised = "SECURITY.md", "## What is promised"

// checkPromises checks that each row of the table of promises names a test. checkDocument checks that the test exists.
func checkPromises(text string, add report) {
	section, rows := "", 0
	for i, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, "## ") {
			section = line
		}
		if section != promised || !strings.HasPrefix(line, "|") {
			continue
		}
		rows++ // the first two are the head of the table
		if rows > 2 && !slices.ContainsFunc(named.FindAllStringSubmatch(line, -1), func(m []string) bool { return m[3] != "" }) {
			add("promises", fmt.Sprintf("%s:%d", promises, i+1), "no test is named: %.60s", line)
		}
	}
	if rows < 3 {
		add("promises", promises, "there is no table of promises in the section %q", promised)
	}
}

// checkDocument checks the tests and the lines of one document. In a document about security or a decision a test
// belongs to the folder in backquotes before it in the same paragraph, item or row. Elsewhere it is in any folder.
func checkDocument(name, text string, tests map[string]map[string]bool, add report) {
	strict := name == promises || withinAny(name, "docs/decisions", "docs/security")
	wrapped := strict || name == theMap
	dir := ""
	for i, line := range strings.Split(text, "\n") {
		at := fmt.Sprintf("%s:%d", name, i+1)
		row := strings.HasPrefix(line, "|")
		if line == "" || row || strings.HasPrefix(line, "#") || strings.HasPrefix(line, "- ") {
			dir = ""
		}
		for _, m := range named.FindAllStringSubmatch(line, -1) {
			switch {
			case m[1] != "":
				dir = m[1]
			case name == theMap:
				add("tests", at, "%s: a test is named in the doc.go of its package", m[3])
			case strict && !tests[dir][m[3]]:
				add("tests", at, "%q has no %s", dir, m[3])
			case !strict && !existsAnywhere(tests, m[3]):
				add("tests", at, "there is no %s", m[3])
			}
		}
		if n := utf8.RuneCountInString(line); n > maxColumns && wrapped && !row {
			add("columns", at, "%d columns; a line has at most %d", n, maxColumns)
		}
	}
}

func existsAnywhere(tests map[string]map[string]bool, name string) bool {
	for _, inFolder := range tests {
		if inFolder[name] {
			return true
		}
	}
	return false
}

// checkGuarantees holds that the tests that a doc.go names exist, as [TestX] in its own folder or as [folder.TestX],
// and that each item of its section Guarantees names one.
func checkGuarantees(tree fs.FS, tests map[string]map[string]bool, add report) error {
	return walk(tree, ".go", func(name string) error {
		if path.Base(name) != "doc.go" {
			return nil
		}
		text, err := fs.ReadFile(tree, name)
		guarantees, item, untested := false, "", ""
		for i, line := range strings.Split(string(text), "\n") {
			at := fmt.Sprintf("%s:%d", name, i+1)
			if begins := strings.HasPrefix(line, "//   - "); begins || !strings.HasPrefix(line, "//     ") {
				if item != "" {
					add("guarantees", untested, "no test is named: %s", item)
				}
				item = ""
				if begins && guarantees {
					item, untested = strings.TrimPrefix(line, "//   - "), at
				}
			}
			if strings.HasPrefix(line, "// # ") {
				guarantees = line == "// # Guarantees"
			}
			for _, m := range named.FindAllStringSubmatch(line, -1) {
				if m[3] == "" {
					continue
				}
				item = ""
				if dir := cmp.Or(m[2], path.Dir(name)); !tests[dir][m[3]] {
					add("tests", at, "%s has no %s", dir, m[3])
				}
			}
		}
		return err
	})
}

// checkMap holds that the map names the folders of the first two levels, and only folders that exist, and is short.
func checkMap(name, text string, tree fs.FS, pkgs []*pkg, add report) {
	folder := regexp.MustCompile("`((?:api|charts|citadel|cmd|deploy|docs|galley|injector|pilot|registry)/[a-z0-9/-]*)`")
	folders := map[string]bool{}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for i, line := range lines {
		for _, m := range folder.FindAllStringSubmatch(line, -1) {
			dir := strings.TrimSuffix(m[1], "/")
			if folders[dir] = true; !isFolder(tree, dir) {
				add("folders", fmt.Sprintf("%s:%d", name, i+1), "there is no %s", dir)
			}
		}
	}
	for _, p := range pkgs {
		top, _, below := strings.Cut(p.dir, "/")
		if dir := top + "/" + second(p.dir); below && !folders[dir] {
			add("folders", name, "%s is not named", dir)
		}
	}
	if len(lines) > maxMap {
		add("length", name, "%d lines; the map has at most %d", len(lines), maxMap)
	}
}

// checkColumns checks that lines of comments and code are wrapped, in tests too. Generated files are exempt.
func checkColumns(tree fs.FS, x *exceptions, add report) error {
	comment, generated := regexp.MustCompile(`^\s*// `), regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)
	return walk(tree, ".go", func(name string) error {
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
				add("columns", at, "%d columns; a line of code has at most %d: break it after a comma or an operator", n, maxCodeColumns)
			}
		}
		return err
	})
}

func isFolder(tree fs.FS, name string) bool {
	info, err := fs.Stat(tree, name)
	return err == nil && info.IsDir()
}

// testsOf returns the names of the tests and fuzz tests of each folder that has any.
func testsOf(tree fs.FS) (map[string]map[string]bool, error) {
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
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
