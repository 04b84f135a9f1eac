package house

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"unicode"
)

// checkLinks checks that each relative link of a document leads to a file or folder of the tree and, with an anchor, to
// a heading in it. Documents below api are parts of other documents, so their links are not relative to them.
func checkLinks(tree fs.FS, add report) error {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	scheme := regexp.MustCompile(`^[a-z]+:`)
	return walk(tree, ".md", func(name string) error {
		if within(name, "api") {
			return nil
		}
		lines, err := proseOf(tree, name)
		for i, line := range lines {
			for _, m := range link.FindAllStringSubmatch(line, -1) {
				if scheme.MatchString(m[1]) {
					continue
				}
				at := fmt.Sprintf("%s:%d", name, i+1)
				file, anchor, _ := strings.Cut(m[1], "#")
				target := name
				if file != "" {
					target = path.Join(path.Dir(name), file)
				}
				if _, err := fs.Stat(tree, target); err != nil {
					add("links", at, "%s leads nowhere", m[1])
					continue
				}
				if anchor == "" {
					continue
				}
				text, err := proseOf(tree, target)
				if err != nil {
					return err
				}
				if !anchorsOf(text)[anchor] {
					add("links", at, "%s: no heading of %s is #%s", m[1], target, anchor)
				}
			}
		}
		return err
	})
}

// proseOf returns the lines of a document. Lines in code blocks are empty.
func proseOf(tree fs.FS, name string) ([]string, error) {
	text, err := fs.ReadFile(tree, name)
	lines, code := strings.Split(string(text), "\n"), false
	for i, line := range lines {
		fence := strings.HasPrefix(strings.TrimSpace(line), "```")
		if code = code != fence; code || fence {
			lines[i] = ""
		}
	}
	return lines, err
}

// anchorsOf returns the anchors of a document's headings.
func anchorsOf(lines []string) map[string]bool {
	heading, linked := regexp.MustCompile(`^#+ +(.*)$`), regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	anchors := map[string]bool{}
	for _, line := range lines {
		m := heading.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		anchor := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, strings.TrimSpace(linked.ReplaceAllString(m[1], "$1")))
		first := anchor
		for n := 1; anchors[anchor]; n++ {
			anchor = fmt.Sprintf("%s-%d", first, n)
		}
		anchors[anchor] = true
	}
	return anchors
}
