package house

import (
	"fmt"
	"io/fs"
	"regexp"
	"strings"
)

// phrase is a construction that a reader must read twice.
type phrase struct {
	pattern *regexp.Regexp
	advice  string // the words to write instead
}

// phrases returns the constructions that comments and documents must not hold.
func phrases() []phrase {
	p := func(pattern, advice string) phrase { return phrase{regexp.MustCompile(pattern), advice} }
	return []phrase{
		p(`\bthose (?:that|which|who)\b|\bwhat of\b|\bthat of\b`,
			`name the noun: "the clusters that", "the address of", not "those that", "that of"`),
		p(`\b(?:[Nn]obody|[Ss]omebody|[Ww]hoever|[Aa]nybody|[Ee]verybody)\b`,
			`name the part of the program: "the caller", "no proxy", "each client"`),
		p(`\b(?:that|who|which|it|them|they|alone|does not|do not|nothing) counts?\b`+
			`|\bcounts (?:for|as|once|where|too|until|here)\b|\bceased to count\b`,
			`say "applies to", "is accepted", "is in force" or "is trusted"`),
		p(`\b(?:has|have|had) (?:\w+ ){1,4}`+
			`(?:looked at|read anew|made anew|made|written|read|asked|sent|closed|issued|started|translated|handed out)\b`,
			`use an active verb: "Refresh reconciles every Gateway", not "has every Gateway looked at"`),
		p(`\b[Ll]ikewise\b|\bin the place of\b|\banew\b|\bin vain\b|\bhardly\b|\bwhichever\b`,
			`say "also", "instead of", "again", "without effect", "rarely" or "any", or repeat the noun`),
		p(`\b[Nn]il: (?:it|nobody|none|there|who|how|with|what|as|is|all|every)\b`,
			`write a whole clause: "nil if leader election is disabled"`),
		p(`(?:^|[.:;] )Of [A-Za-z]`,
			`begin with the subject: "Only the image is kept from a Pod", not "Of a Pod ..."`),
		p(`as (?:it|they) should be|\bare others\b|\b(?:is|be|was) another\b|\bof others\b`,
			`say what differs or what is wrong: "changed", "failed to reconcile", "of other namespaces"`),
		p(`(?:^|[.;] )What (?:is|of|else|was|has|it|they)\b`,
			`begin with a noun: "Files that were written stay", not "What was written stays"`),
	}
}

// checkWords checks that documents, and comments of Go files outside tests, have none of the phrases outside the
// exceptions.
func checkWords(tree fs.FS, pkgs []*pkg, x *exceptions, add report) error {
	all := phrases()
	check := func(file string, line int, text string) {
		for _, p := range all {
			for _, m := range p.pattern.FindAllString(text, -1) {
				passive := strings.Contains(m, " been ") // a passive, as in "not been read"
				if !passive && !x.allows("words", file, text) {
					add("words", fmt.Sprintf("%s:%d", file, line), "%q: %s", strings.TrimSpace(m), p.advice)
				}
			}
		}
	}
	for _, p := range pkgs {
		for _, f := range p.files {
			for _, group := range f.ast.Comments {
				for _, c := range group.List {
					first := f.fset.Position(c.Pos()).Line
					for i, line := range strings.Split(c.Text, "\n") {
						check(f.path, first+i, strings.TrimSpace(strings.TrimPrefix(line, "//")))
					}
				}
			}
		}
	}
	return walk(tree, ".md", func(name string) error {
		text, err := fs.ReadFile(tree, name)
		for i, line := range strings.Split(string(text), "\n") {
			check(name, i+1, line)
		}
		return err
	})
}
