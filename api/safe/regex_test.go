package safe

import (
	"regexp/syntax"
	"strings"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/api/limits"
)

func TestRegexSizeRefuses(t *testing.T) {
	for name, expr := range map[string]string{
		"long":             strings.Repeat("a", limits.Default().RegexBytes+1),
		"megabyte":         strings.Repeat("a?", 1<<19),
		"repeats":          strings.Repeat("(x{1000})", 113),
		"nested repeats":   "((((a{30}){30}){30}){30}){2}",
		"nested unbounded": "((a{999}){999,}){0,999}",
		"nested groups":    strings.Repeat("(", 10000) + strings.Repeat(")", 10000),
		"not RE2":          "(a)\\1",
		"look ahead":       "(?=a)b",
		"unclosed":         "a(b",
		"not UTF-8":        "a\xff",
		"wide":             `a\x{100}`,
		"wide in a class":  `[^a-\x{10FFFF}]`,
		"wide after Q":     `\Q\x{100}\E\x{100}`,
	} {
		start := time.Now()
		if _, err := RegexSize(limits.Default(), expr); err == nil {
			t.Errorf("%s: accepted", name)
		}
		if d := time.Since(start); d > time.Second {
			t.Errorf("%s: took %v", name, d)
		}
	}
}

func TestRegexSizeAccepts(t *testing.T) {
	for _, expr := range []string{"", "a", "^/api/v[0-9]+/.*$", "(a+)+$", "[^/]{1,63}", "(?i)firefox|chrome", `1\.29.*`, `\x{FF}\x41`, "日[é]", `\\x{100}`, `\Q\x{100}\E`, `\Q\x{100}`} {
		if _, err := RegexSize(limits.Default(), expr); err != nil {
			t.Errorf("%q: %v", expr, err)
		}
	}
}

// The count may be too high, since Simplify saves instructions, but a count that is too low would let a large program in.
func TestRegexSizeIsAnUpperBound(t *testing.T) {
	for _, expr := range []string{
		"", "a", "abc", "a|b|cd", "(a)(b)", "a*", "(a*)*", "(|a)*", "(a|b*)*c", "a{3}", "a{3,}", "a{0,}", "a{0,5}", "(ab){2,7}", "(a{3}){4}", "(?:a?){20}", "(?:a*){2,}",
		"[a-z]+", "^a$", `\bfoo\b`, "(?i)k", "(?s).", `\p{L}{1,10}`, "x{0}", "(x{2}y{3,4}|z?)*",
	} {
		n, err := RegexSize(limits.Default(), expr)
		if err != nil {
			t.Errorf("%q: %v", expr, err)
			continue
		}
		tree, err := syntax.Parse(expr, syntax.Perl)
		if err != nil {
			t.Fatal(err)
		}
		prog, err := syntax.Compile(tree.Simplify())
		if err != nil {
			t.Fatal(err)
		}
		if len(prog.Inst) > n {
			t.Errorf("%q: counted %d, compiled to %d", expr, n, len(prog.Inst))
		}
		if n > 2*len(prog.Inst)+8 {
			t.Errorf("%q: counted %d, compiled to only %d", expr, n, len(prog.Inst))
		}
	}
}
